// Numbers as text, with a unit that fits their size.

function scaled(value, unit) {
  const prefixes = ["", "k", "M", "G", "T"];
  let step = 0;
  while (value >= 999.5 && step < prefixes.length - 1) {
    value /= 1000;
    step += 1;
  }
  const digits = step > 0 && value < 99.95 ? 1 : 0;
  return `${value.toFixed(digits)} ${prefixes[step]}${unit}`;
}

/** A rate in bits per second. */
export const rate = (bps) => scaled(bps, "bit/s");

/** An amount of data in bytes. */
export const bytes = (count) => scaled(count, "B");

/** A duration in milliseconds; none is a dash. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0.9995) return `${(ms * 1000).toFixed(0)} µs`;
  if (ms < 999.5) return `${ms.toFixed(ms < 9.995 ? 2 : ms < 99.95 ? 1 : 0)} ms`;
  const units = [[60, "s"], [60, "min"], [24, "h"], [Infinity, "d"]];
  let value = ms / 1000;
  for (const [size, name] of units) {
    if (value < size * 1.5) return `${value.toFixed(0)} ${name}`;
    value /= size;
  }
}

/** A share from 0 to 1. */
export const percent = (share) => `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;

/** A time of day, from RFC 3339, in the browser's time zone. */
export const timeOfDay = (text) =>
  new Date(text).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

/** The least of 1, 2 and 5 times a power of ten that is not below `value`. */
export function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}
