// Asks what is in images, a handful at a time; one bad file does not spoil the answers about the others.

import { request } from "./service.js";

const MOST_IMAGES = 8;
const MOST_GUESSES = 3;
const MOST_BYTES = 16 * 2 ** 20;
export const BAD_INPUT = [400, 413, 415, 422];

// Cuts a list of cards so that a request stays small.
export function* handfuls(cards) {
  let held = [];
  let size = 0;
  for (const card of cards) {
    if (held.length > 0 && (held.length >= MOST_IMAGES || size + card.file.size > MOST_BYTES)) {
      yield held;
      held = [];
      size = 0;
    }
    held.push(card);
    size += card.file.size;
  }
  if (held.length > 0) yield held;
}

// Returns the oldest version that answered, or null if nothing was answered.
export async function ask(cards) {
  const versions = [];
  for (const handful of handfuls(cards)) versions.push(await askHandful(handful));
  return oldest(versions);
}

async function askHandful(cards) {
  const form = new FormData();
  for (const card of cards) form.append("images", card.file, "image");
  try {
    const { version, predictions } = await request(`predict?top=${MOST_GUESSES}`, { method: "POST", body: form });
    // Meanwhile one may have been taught or cleared.
    cards.forEach((card, index) => ["waiting", "open"].includes(card.state) && card.answer(predictions[index]));
    return version;
  } catch (error) {
    if (cards.length > 1 && BAD_INPUT.includes(error.status)) return askOneByOne(cards);
    for (const card of cards) if (card.state === "waiting") card.fail(error.message);
    return null;
  }
}

async function askOneByOne(cards) {
  const versions = [];
  for (const card of cards) versions.push(await askHandful([card]));
  return oldest(versions);
}

function oldest(versions) {
  const answered = versions.filter((version) => version !== null);
  return answered.length > 0 ? Math.min(...answered) : null;
}
