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
  for (const batch of batches(cards)) versions.push(await predictBatch(batch));
  return oldest(versions);
}

async function predictBatch(cards) {
  const form = new FormData();
  for (const card of cards) form.append("images", card.file, "image");
  try {
    const { version, predictions } = await request(`predict?top=${MOST_GUESSES}`, { method: "POST", body: form });
    // Meanwhile one may have been taught or cleared.
    cards.forEach((card, index) => ["waiting", "open"].includes(card.state) && card.showPrediction(predictions[index], version));
    return version;
  } catch (error) {
    if (cards.length > 1 && BAD_INPUT.includes(error.status)) return predictOneByOne(cards);
    for (const card of cards) if (card.state === "waiting") card.fail(error.message);
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
