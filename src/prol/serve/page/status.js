// What the service does now, polled every two seconds while the page is visible.

import { drawAccuracy } from "./chart.js";
import { showClasses } from "./classes.js";
import { request } from "./service.js";
import { bytes, clock, duration, images, number, percent, rate } from "./words.js";

const SECONDS = 2;
const at = (id) => document.getElementById(id);

const SYMBOLS = {
  learnt: "+",
  predicted: "?",
  labelled: "✓",
  renamed: "✎",
  removed: "−",
  undone: "↶",
  exported: "↓",
  merged: "∪",
  refused: "!",
};

let timer = null;
let running = null;
let shownEvents = "";
let shownUpdates = "";
let classesVersion = null;

export function refresh() {
  clearTimeout(timer);
  running ??= poll().finally(() => {
    running = null;
    if (!document.hidden) timer = setTimeout(refresh, SECONDS * 1000);
  });
  return running;
}

// A poll that began before an update ended may have missed it: then a second one follows.
export async function refreshAfterChange() {
  if (running) await running;
  return refresh();
}

async function poll() {
  try {
    const status = await request("status", {}, { background: true });
    show(status);
    // Fetched again until the list is as new as the status.
    if (status.version !== classesVersion) classesVersion = await showClasses();
    connection("on", "connected");
  } catch (error) {
    connection("off", error.status === 401 ? "token needed" : "no connection");
    if (![0, 401, 429, 503].includes(error.status)) console.warn(error.message);
  }
}

function connection(state, text) {
  const place = at("connection");
  if (place.textContent === text) return;
  place.dataset.state = state;
  place.textContent = text;
}

function show(status) {
  at("model").textContent = `${status.method} on ${status.backbone}, version ${number(status.version)}`;
  showAccuracy(status.prequential);
  showNumbers(status);
  showEvents(status.events);
  document.dispatchEvent(new CustomEvent("status", { detail: status }));
}

function showAccuracy({ answered, correct, recent }) {
  at("accuracy").textContent = answered > 0 ? percent(correct / answered) : "–";
  at("accuracy-of").textContent = answered > 0 ? `${number(correct)} of ${images(answered)} right` : "";
  at("chart-note").textContent =
    answered > 0
      ? "A dot is an update, the line the mean of about 20 images; each image was predicted before it was taught."
      : "Label an image after it was predicted, and the share of correct predictions is shown here.";
  const updates = JSON.stringify(recent);
  if (updates === shownUpdates) return;
  shownUpdates = updates;
  drawAccuracy(at("chart"), recent);
}

function showNumbers({ images_learnt: learnt, throughput, memory, queue }) {
  const stored = memory.samples_kept;
  const rows = [
    ["Learnt", images(learnt)],
    ["Memory", `${number(stored)} ${stored === 1 ? "sample" : "samples"} stored`],
    ["Statistics", bytes(memory.statistics_bytes)],
    ["Parameters", bytes(memory.parameters_bytes)],
    ["Awaiting a label", awaiting(memory)],
    ["Learning", rate(throughput.learn_images_per_second)],
    ["Predicting", rate(throughput.predict_images_per_second)],
    ["Queue", `${number(queue.waiting)} of ${number(queue.limit)}`],
  ];
  const list = at("numbers");
  if (list.children.length !== rows.length) list.replaceChildren(...rows.map(numberRow));
  rows.forEach(([, value], index) => {
    const place = list.children[index].lastElementChild;
    if (place.textContent !== value) place.textContent = value;
  });
}

function awaiting({ pending_images: count, pending_seconds: seconds }) {
  return count > 0 ? `${images(count)}, ${duration(seconds)} at most` : "none";
}

function numberRow([name]) {
  const row = document.createElement("div");
  const term = document.createElement("dt");
  term.textContent = name;
  row.append(term, document.createElement("dd"));
  return row;
}

function showEvents(events) {
  at("events-note").hidden = events.length > 0;
  const seen = JSON.stringify(events);
  if (seen === shownEvents) return;
  shownEvents = seen;
  at("events").replaceChildren(...events.map(eventRow));
}

function eventRow({ time, kind, text }) {
  const row = document.createElement("li");
  row.dataset.kind = kind;
  const symbol = document.createElement("span");
  symbol.className = "symbol";
  symbol.setAttribute("aria-hidden", "true");
  symbol.textContent = SYMBOLS[kind] ?? "·";
  const what = document.createElement("span");
  const verb = document.createElement("b");
  verb.textContent = kind;
  const detail = document.createElement("bdi");
  detail.textContent = text;
  what.append(verb, " ", detail);
  const moment = document.createElement("time");
  moment.dateTime = time;
  moment.textContent = clock(time);
  row.append(symbol, what, moment);
  return row;
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) refresh();
});
