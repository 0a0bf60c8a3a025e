// Requests to the service: its token, its errors, and waiting where it asks for that.

import { say } from "./notices.js";
import { askForToken, storedToken, wasDeclined } from "./token.js";

const TRIES = 4;
const LONGEST_WAIT = 20;

export class ServiceError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function newKey() {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

// `background` requests neither wait nor ask twice for a token. What may be sent twice (all but a learning request
// without a key) is sent again when no response came.
export async function request(path, options = {}, { background = false, again = true, read = asJson } = {}) {
  for (let tried = 1; ; tried += 1) {
    const token = storedToken();
    try {
      return await send(path, options, token, read);
    } catch (error) {
      if (error.status === 401) {
        if (token !== storedToken()) continue;
        if (background && wasDeclined()) throw error;
        if (!(await askForToken())) throw new ServiceError("The service needs a token.", 401);
        continue;
      }
      const passing = error.wait !== undefined || (error.status === 0 && again);
      if (background || !passing || tried >= TRIES) throw error;
      if (error.wait > 1) say(`The service is busy; trying again in ${error.wait} s.`);
      await pause(error.wait ?? tried);
    }
  }
}

// A file: its name and its content.
export function download(path) {
  return request(path, {}, { read: asFile });
}

export function sendJson(method, path, content, key) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers["Idempotency-Key"] = key;
  return request(path, { method, headers, body: JSON.stringify(content) }, { again: Boolean(key) });
}

async function send(path, options, token, read) {
  const headers = new Headers(options.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  let response;
  let content;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
    content = response.ok ? await read(response) : await asJson(response);
  } catch {
    throw new ServiceError("The service does not respond. Is it still running, and is this machine connected?", 0);
  }
  if (response.ok && content !== undefined) return content;
  throw refusal(response, content);
}

const asJson = async (response) => parsed(await response.text());

async function asFile(response) {
  const [, name] = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "") ?? [null, "learner"];
  return { name, content: await response.blob() };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function refusal(response, content) {
  const message = content?.error?.message ?? `The service responded with ${response.status} ${response.statusText}.`;
  const error = new ServiceError(message, response.status);
  const wait = Number(response.headers.get("Retry-After"));
  if ([429, 503].includes(response.status) && wait > 0) error.wait = Math.min(wait, LONGEST_WAIT);
  return error;
}
