// Pictures from a camera. What the camera sees stays in the browser; a picture is sent when it is taught, or when somebody
// asks for its prediction.

import { knownLabels } from "./classes.js";
import { addFiles, teachAs } from "./images.js";
import { labelFor } from "./labels.js";
import { quoted } from "./words.js";

const QUALITY = 0.92;
const at = (id) => document.getElementById(id);

let stream = null;
let facing = "environment"; // the back of a phone; a laptop has one camera only
let taken = 0;
let opened = 0; // so that a camera that starts after the dialog was closed is switched off again

async function open() {
  taken = 0;
  at("camera-said").textContent = "";
  at("camera-dialog").showModal();
  await start();
}

async function start() {
  const mine = (opened += 1);
  stop();
  show("waiting");
  if (!navigator.mediaDevices?.getUserMedia) return fallBack(reasonWithout());
  try {
    const started = await navigator.mediaDevices.getUserMedia({ video: { facingMode: facing }, audio: false });
    if (mine !== opened || !at("camera-dialog").open) return started.getTracks().forEach((track) => track.stop());
    stream = started;
    at("camera-view").srcObject = stream;
    await at("camera-view").play();
    show("live");
    const devices = await navigator.mediaDevices.enumerateDevices();
    at("camera-turn").hidden = devices.filter(({ kind }) => kind === "videoinput").length < 2;
    // On a touch screen a focused field would bring up the keyboard uninvited.
    at(matchMedia("(pointer: coarse)").matches ? "camera-take" : "camera-label").focus();
  } catch (error) {
    if (mine === opened) fallBack(reasonOf(error));
  }
}

function stop() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  at("camera-view").srcObject = null;
}

function reasonWithout() {
  if (window.isSecureContext) return "This browser does not give pages a camera.";
  return "Browsers give the camera only to pages from HTTPS or from this machine itself, and this one came over plain HTTP.";
}

function reasonOf(error) {
  if (error.name === "NotAllowedError") return "The browser was not allowed to use the camera: its settings for this page change that.";
  if (error.name === "NotFoundError") return "There is no camera here.";
  if (error.name === "NotReadableError") return "The camera is used by another program.";
  return `The camera cannot be used: ${error.message}.`;
}

function fallBack(reason) {
  stop();
  at("camera-why").textContent = `${reason} On a phone, its camera app can take the picture instead.`;
  show("fallback");
}

function show(state) {
  at("camera-live").hidden = state === "fallback";
  at("camera-fallback").hidden = state !== "fallback";
  at("camera-take").hidden = state === "fallback";
  at("camera-take").disabled = state !== "live";
}

async function take() {
  const view = at("camera-view");
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [view.videoWidth, view.videoHeight];
  canvas.getContext("2d").drawImage(view, 0, 0);
  const content = await new Promise((done) => canvas.toBlob(done, "image/jpeg", QUALITY));
  if (content === null) return;
  taken += 1;
  add([new File([content], `picture ${taken}.jpg`, { type: "image/jpeg" })]);
}

async function add(files) {
  const label = labelFor(at("camera-label").value, knownLabels());
  const added = await addFiles(files, { held: true });
  if (added.length === 0) {
    at("camera-dialog").close(); // the page says why
  } else if (label === "") {
    at("camera-said").textContent = `Picture ${taken} is on the page.`;
  } else {
    await teachAs(added, label);
    const failed = added.find(({ state }) => state !== "taught");
    at("camera-said").textContent = failed ? failed.part("state").textContent : `Taught ${added[0].name} as ${quoted(label)}.`;
  }
}

at("camera-open").addEventListener("click", open);
at("camera-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (stream !== null) take();
});
at("camera-turn").addEventListener("click", () => {
  facing = facing === "environment" ? "user" : "environment";
  start();
});
at("camera-file").addEventListener("change", ({ target }) => {
  const files = [...target.files];
  target.value = "";
  taken += files.length;
  add(files);
});
at("camera-dialog").addEventListener("close", () => {
  stop();
  at("camera-open").focus();
});
