// Labels are text or whole numbers; 1 and "1" are two different classes.

const WHOLE = /^-?\d{1,15}$/;

export const keyOf = (label) => `${typeof label}:${label}`;

export const isNumber = (label) => typeof label === "number";

// What somebody means who types `text`: a class that is there, else a number where all classes are numbers, else text.
export function labelFor(text, classes) {
  const typed = text.trim();
  if (classes.includes(typed) || !WHOLE.test(typed)) return typed;
  const value = Number(typed);
  const allNumbers = classes.length > 0 && classes.every(isNumber);
  return classes.includes(value) || allNumbers ? value : typed;
}

export function pathOf(label, verb = "") {
  const name = String(label);
  // Browsers take these two for "here" and "one up", however they are written.
  if (name === "." || name === "..") throw new Error(`A class named “${name}” cannot be changed from a browser.`);
  return `classes/${encodeURIComponent(name)}${verb}${isNumber(label) ? "?integer=true" : ""}`;
}
