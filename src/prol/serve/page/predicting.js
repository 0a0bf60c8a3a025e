// Predicts images in small batches; one bad file does not affect the predictions of the others.

import { request } from "./service.js";

const MOST_IMAGES = 8;
const MOST_GUESSES = 3;
const MOST_BYTES = 16 * 2 ** 20;
export const BAD_INPUT = [400, 413, 415, 422];

let mostImages = MOST_IMAGES; // that the service takes in one request

export const mostPerRequest = () => mostImages;

document.addEventListener("status", ({ detail: { limits } }) => (mostImages = limits.images));

// Splits a list of cards so that requests stay small.
export function* batches(cards, most = MOST_IMAGES) {
  const limit = Math.min(most, mostImages);
  let batch = [];
  let size = 0;
  for (const card of cards) {
    if (batch.length > 0 && (batch.length >= limit || size + card.file.size > MOST_BYTES)) {
      yield batch;
      batch = [];
      size = 0;
    }
    batch.push(card);
    size += card.file.size;
  }
  if (batch.length > 0) yield batch;
}

// Returns the oldest version among the predictions, or null if there is none.
export async function predict(cards) {
  const versions = [];
  for (const batch of batches(cards)) {
    const remembered = batch.filter(({ id }) => id !== null);
    const sent = batch.filter(({ id }) => id === null);
    if (remembered.length > 0) versions.push(await predictAgain(remembered));
    if (sent.length > 0) versions.push(await predictBatch(sent));
  }
  return oldest(versions);
}

// By their ids, so that no image is sent twice; with their files where the service has forgotten them.
async function predictAgain(cards) {
  const ids = cards.map(({ id }) => id);
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ids }) };
  try {
    const { version, predictions, unknown_ids: forgotten } = await request(`predict/again?top=${MOST_GUESSES}`, options);
    const found = new Map(predictions.map((prediction) => [prediction.id, prediction]));
    for (const card of cards) if (found.has(card.id)) show(card, found.get(card.id), version);
    const rest = cards.filter((card) => forgotten.includes(card.id) && isWaiting(card));
    return rest.length > 0 ? oldest([version, await predictBatch(rest)]) : version;
  } catch (error) {
    if (BAD_INPUT.includes(error.status)) return predictBatch(cards);
    failWaiting(cards, error);
    return null;
  }
}

// Meanwhile a card may have been taught or cleared.
const isWaiting = ({ state }) => state === "waiting" || state === "open";

function show(card, prediction, version) {
  if (isWaiting(card)) card.showPrediction(prediction, version);
}

function failWaiting(cards, error) {
  for (const card of cards) if (card.state === "waiting") card.fail(error.message);
}

async function predictBatch(cards) {
  const form = new FormData();
  for (const card of cards) form.append("images", card.file, "image");
  try {
    const { version, predictions } = await request(`predict?top=${MOST_GUESSES}`, { method: "POST", body: form });
    cards.forEach((card, index) => show(card, predictions[index], version));
    return version;
  } catch (error) {
    if (cards.length > 1 && BAD_INPUT.includes(error.status)) return predictOneByOne(cards);
    failWaiting(cards, error);
    return null;
  }
}

async function predictOneByOne(cards) {
  const versions = [];
  for (const card of cards) versions.push(await predictBatch([card]));
  return oldest(versions);
}

function oldest(versions) {
  const found = versions.filter((version) => version !== null);
  return found.length > 0 ? Math.min(...found) : null;
}
