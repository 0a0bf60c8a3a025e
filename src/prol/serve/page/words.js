// Numbers as people read them.

const LOCALE = "en-GB";

export const number = (value) => (value == null ? "–" : value.toLocaleString(LOCALE));

export function percent(share) {
  if (share == null) return "–";
  const hundredths = share * 100;
  if (hundredths > 0 && hundredths < 1) return "<1 %";
  if (hundredths > 99 && hundredths < 100) return ">99 %";
  return `${Math.round(hundredths)} %`;
}

export function bytes(amount) {
  if (amount == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = amount;
  let unit = 0;
  for (; size >= 1000 && unit < units.length - 1; unit += 1) size /= 1000;
  return `${size < 10 && unit > 0 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

export function rate(perSecond) {
  if (perSecond == null) return "–";
  const shown = perSecond >= 10 || perSecond === 0 ? Math.round(perSecond) : perSecond.toFixed(1);
  return `${shown} images/s`;
}

export const duration = (seconds) => (seconds >= 120 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds)} s`);

export const images = (count) => `${number(count)} ${count === 1 ? "image" : "images"}`;

// A name that is not taken yet: “image.png”, then “image.png (2)”.
export function distinct(name, taken) {
  let found = name;
  for (let copy = 2; taken.has(found); copy += 1) found = `${name} (${copy})`;
  return found;
}

export const quoted = (label) => `“${label}”`;

export function clock(time) {
  const moment = new Date(time);
  return Number.isNaN(moment.getTime()) ? String(time) : moment.toLocaleTimeString(LOCALE);
}
