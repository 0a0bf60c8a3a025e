// Accuracy over the latest updates: dots are updates, the line is the mean over about 20 images.

import { images, percent } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 320;
const HEIGHT = 120;
const ROOM = { left: 4, right: 44, top: 8, bottom: 8 };
const WINDOW = 20;

export function drawAccuracy(holder, recent) {
  if (recent.length === 0) {
    holder.replaceChildren();
    return;
  }
  const points = places(recent);
  const last = points[points.length - 1];
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", summary(points));
  for (const level of [0, 0.5, 1]) {
    svg.append(shape("line", { class: "grid", x1: ROOM.left, x2: WIDTH - ROOM.right, y1: down(level), y2: down(level) }));
    if (Math.abs(level - last.mean) > 0.13) svg.append(words(percent(level), down(level), "axis"));
  }
  for (const point of points) {
    const dot = shape("circle", { class: "update", cx: point.x, cy: down(point.accuracy), r: 2.5 });
    const title = shape("title", {});
    title.textContent = `${images(point.images)}: ${percent(point.accuracy)} right`;
    dot.append(title);
    svg.append(dot);
  }
  svg.append(shape("polyline", { class: "mean", points: points.map((p) => `${p.x},${down(p.mean)}`).join(" ") }));
  svg.append(shape("circle", { class: "latest", cx: last.x, cy: down(last.mean), r: 4 }));
  svg.append(words(percent(last.mean), down(last.mean), "value"));
  holder.replaceChildren(svg);
}

// Places on the picture: `x` by images seen, `mean` over the preceding updates of about WINDOW images.
function places(recent) {
  const total = recent.reduce((sum, update) => sum + update.images, 0);
  let seen = 0;
  return recent.map((update, index) => {
    seen += update.images;
    return { ...update, x: across(recent.length === 1 ? 1 : seen / total), mean: meanBefore(recent, index) };
  });
}

function meanBefore(recent, index) {
  let count = 0;
  let right = 0;
  for (let at = index; at >= 0 && count < WINDOW; at -= 1) {
    count += recent[at].images;
    right += recent[at].images * recent[at].accuracy;
  }
  return count === 0 ? 0 : right / count;
}

function summary(points) {
  const means = points.map((point) => point.mean);
  const from = percent(means[0]);
  const to = percent(means[means.length - 1]);
  return `Accuracy over the last ${points.length} updates: from ${from} to ${to}, lowest ${percent(Math.min(...means))}, highest ${percent(Math.max(...means))}.`;
}

const across = (share) => ROOM.left + share * (WIDTH - ROOM.left - ROOM.right);

const down = (share) => ROOM.top + (1 - share) * (HEIGHT - ROOM.top - ROOM.bottom);

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function words(text, y, kind) {
  const made = shape("text", { class: kind, x: WIDTH - ROOM.right + 8, y, "dominant-baseline": "middle" });
  made.textContent = text;
  return made;
}
