// The connection to the server: lines of JSON that come as things happen. It is opened again when it is lost, from the
// version that the page has.

import { ask, document_, Refused } from "./server.js";
import { change, state, takeServices } from "./state.js";

// The server says something every three seconds.
const SILENCE = 10_000;
// Before the first answer it may ask the API server about many namespaces.
const FIRST_SILENCE = 30_000;
const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 5_000;

let stop = new AbortController();
let wake = () => {};

/** Connects for as long as the page is open. */
export async function connect() {
  // A browser keeps a page that was left for a while, with its connections, and has six for a server: after as many visits
  // the next one would wait. The loop below goes on when the user comes back.
  addEventListener("pagehide", () => stop.abort());
  let pause = FIRST_PAUSE;
  for (;;) {
    if (state.connection === "paused" || state.connection === "refused") {
      await new Promise((resolve) => { wake = resolve; });
      continue;
    }
    stop = new AbortController();
    try {
      await read(stop, () => { pause = FIRST_PAUSE; });
      lost("the server has closed the connection");
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        change({ connection: "refused", connectionError: error.message });
      } else {
        lost(error.message);
      }
    }
    await Promise.race([sleep(pause), new Promise((resolve) => { wake = resolve; })]);
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

function lost(why) {
  if (state.connection !== "paused") change({ connection: "lost", connectionError: why });
}

const sleep = (time) => new Promise((resolve) => setTimeout(resolve, time));

async function read(controller, alive) {
  const run = state.cluster?.run ?? "";
  const version = state.version ?? "";
  const watchdog = { timer: 0 };
  const heard = (patience = SILENCE) => {
    clearTimeout(watchdog.timer);
    watchdog.timer = setTimeout(() => controller.abort(new Error("the server is silent")), patience);
  };
  heard(FIRST_SILENCE);
  try {
    const path = `/api/v1/stream?run=${encodeURIComponent(run)}&version=${version}`;
    const response = await ask(path, { signal: controller.signal });
    change({ connection: "live", connectionError: "" });
    learnReasons();
    const decoder = new TextDecoder();
    const reader = response.body.getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      alive();
      text += decoder.decode(value, { stream: true });
      const lines = text.split("\n");
      text = lines.pop();
      for (const line of lines) if (line) take(JSON.parse(line));
    }
  } finally {
    clearTimeout(watchdog.timer);
    controller.abort();
  }
}

function take(message) {
  if (message.kind === "Cluster") change({ cluster: message });
  else if (message.kind === "Services") takeServices(message);
  else if (message.kind === "Lab") change({ lab: message });
}

async function learnReasons() {
  if (state.reasons.size > 0) return;
  try {
    const { reasons } = await document_("/api/v1/reasons");
    change({ reasons: new Map(reasons.map((reason) => [reason.code, reason])) });
  } catch {
    // Codes are shown without their sentences until the next connection.
  }
}

/** Stays as it is, or goes on from there. */
export function setPaused(paused) {
  change({ connection: paused ? "paused" : "connecting" });
  if (paused) stop.abort();
  wake();
}

/** Tries again with a token. */
export function useToken(token) {
  change({ token, connection: "connecting", connectionError: "", services: new Map(), version: null });
  stop.abort();
  wake();
}
