// What the page knows. There is one state; views are drawn from it.

export const state = {
  /** Name, zones, what runs; the message `Cluster`. */
  cluster: null,
  /** Services by name, as lines of the document `Overview`. */
  services: new Map(),
  /** The version of these lines. */
  version: null,
  /** How often the objects of each Service have changed since the page was opened. */
  touched: new Map(),
  touchedAll: 0,
  /** What a lab has measured; the message `Lab`. */
  lab: null,
  /** connecting, live, lost, paused, refused. */
  connection: "connecting",
  /** Why the connection was lost or refused. */
  connectionError: "",
  /** A token of the cluster, where one is needed. It is in memory only. */
  token: null,
  /** Sentences and remedies by code of reason. */
  reasons: new Map(),
};

/** The sentence of a reason's code; the code until the sentences are here. */
export const sentenceOf = (code) => state.reasons.get(code)?.sentence ?? code;

const listeners = new Set();
let scheduled = false;

/** Calls a listener after changes, once for all of one frame. Returns how to stop that. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Changes the state. */
export function change(fields) {
  Object.assign(state, fields);
  if (scheduled) return;
  scheduled = true;
  // A hidden tab gets no frames, and has to know what happens all the same.
  const soon = document.hidden ? (work) => setTimeout(work, 200) : requestAnimationFrame;
  soon(() => {
    scheduled = false;
    for (const listener of [...listeners]) listener();
  });
}

/** Takes the message `Services`. */
export function takeServices(message) {
  const services = message.complete ? new Map() : state.services;
  for (const line of message.services) {
    services.set(line.service, line);
    touch(line.service);
  }
  for (const name of message.removed) {
    services.delete(name);
    touch(name);
  }
  message.touched.forEach(touch);
  const touchedAll = state.touchedAll + (message.touchedAll || message.complete ? 1 : 0);
  change({ services, version: message.version, touchedAll });
}

function touch(name) {
  state.touched.set(name, (state.touched.get(name) ?? 0) + 1);
}

/** Changes whenever the objects of a Service have changed. */
export const touches = (name) => `${state.touched.get(name) ?? 0}/${state.touchedAll}`;
