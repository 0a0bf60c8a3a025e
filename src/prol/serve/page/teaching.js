// Teaches: as a late label while the service remembers its answer, else with the file itself.

import { BAD_INPUT, handfuls } from "./asking.js";
import { isNumber } from "./labels.js";
import { newKey, request, sendJson } from "./service.js";

const MOST_LABELS = 64;

// Keys of lessons whose answer never came: taught once more, they must not count twice.
const unanswered = new Map();

// Returns how many were learnt, how many of them had been answered right, the version, and what went wrong.
export async function teach(cards, label) {
  await Promise.allSettled(cards.map((card) => card.asked));
  const outcome = { learnt: 0, correct: 0, version: 0, problem: null };
  for (const card of cards) card.teaching(label);
  const forgotten = cards.filter((card) => card.id === null);
  const answered = cards.filter((card) => card.id !== null);
  for (let start = 0; start < answered.length; start += MOST_LABELS) {
    forgotten.push(...(await teachLate(answered.slice(start, start + MOST_LABELS), label, outcome)));
  }
  for (const handful of handfuls(forgotten)) await teachFiles(handful, label, outcome);
  return outcome;
}

// Returns the cards whose prediction the service has forgotten.
async function teachLate(cards, label, outcome) {
  const labels = cards.map(({ id }) => ({ id, label }));
  try {
    const answer = await once(labels, (key) => sendJson("POST", "labels", { labels }, key));
    const unknown = new Set(answer.unknown_ids);
    settle(cards.filter(({ id }) => !unknown.has(id)), label, answer, outcome);
    outcome.correct += answer.correct;
    return cards.filter(({ id }) => unknown.has(id));
  } catch (error) {
    if (error.status === 404) return cards;
    fail(cards, error, outcome);
    return [];
  }
}

async function teachFiles(cards, label, outcome) {
  const form = new FormData();
  for (const card of cards) form.append("images", card.file, "image");
  form.append("labels", String(label));
  if (isNumber(label)) form.append("integers", "true");
  const send = (key) => request("learn", { method: "POST", body: form, headers: { "Idempotency-Key": key } });
  try {
    const answer = await once([cards.map(({ number }) => number), label], send);
    settle(cards, label, answer, outcome);
  } catch (error) {
    if (cards.length === 1 || !BAD_INPUT.includes(error.status)) fail(cards, error, outcome);
    else for (const card of cards) await teachFiles([card], label, outcome);
  }
}

function settle(cards, label, { version }, outcome) {
  for (const card of cards) card.taught(label);
  outcome.learnt += cards.length;
  outcome.version = version;
}

function fail(cards, error, outcome) {
  for (const card of cards) card.reopen(error.message);
  outcome.problem = error.message;
}

async function once(content, send) {
  const signature = JSON.stringify(content);
  const key = unanswered.get(signature) ?? newKey();
  unanswered.set(signature, key);
  try {
    const answer = await send(key);
    unanswered.delete(signature);
    return answer;
  } catch (error) {
    // Whoever stands between may fail though the lesson was learnt: only a refusal of the service itself ends it.
    if (error.status >= 400 && error.status < 500) unanswered.delete(signature);
    throw error;
  }
}
