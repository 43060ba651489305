// Questions to the server.

import { state } from "./state.js";

/** The server refuses to answer, and why. */
export class Refused extends Error {
  constructor(status, text) {
    super(text.trim() || `the server answers ${status}`);
    this.status = status;
  }
}

/** Asks the server. `body` is posted as JSON. */
export async function ask(path, { body, signal } = {}) {
  const headers = {};
  if (state.token) headers.authorization = `Bearer ${state.token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const response = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    credentials: "omit",
    cache: "no-store",
    redirect: "error",
  });
  if (!response.ok) throw new Refused(response.status, await response.text());
  return response;
}

/** The document at a path. */
export const document_ = async (path, options) => (await ask(path, options)).json();

/** The path of a question about a Service. */
export const about = (path, service) => `/api/v1/${path}?name=${encodeURIComponent(service)}`;
