/** What a value is that JSON cannot carry, and what to send instead. Never what it holds: that may be personal. */
export function oddValue(value: unknown): string {
  const [what, remedy] = described(value);
  return `is ${what}, which JSON cannot carry unchanged; ${remedy}`;
}

type Odd = readonly [what: string, remedy: string];

const ofType: Partial<Record<string, Odd>> = {
  bigint: ["a BigInt", "send it as text"],
  function: ["a function", "leave it out"],
  symbol: ["a symbol", "leave it out"],
  undefined: ["undefined", "send null"],
};

const ofClass: readonly (readonly [is: (value: unknown) => boolean, odd: Odd])[] = [
  [(value) => value instanceof Date, ["a Date", "send its toISOString()"]],
  [(value) => value instanceof Map, ["a Map", "send an object, or a list of pairs"]],
  [(value) => value instanceof Set, ["a Set", "send a list"]],
  [(value) => ArrayBuffer.isView(value), ["bytes", "send them as base64, or attach them with bus.attach()"]],
  [(value) => Array.isArray(value), ["a list with toJSON", "send a plain list"]],
];

function described(value: unknown): Odd {
  if (typeof value === "number") return [String(value), "send null, or leave it out"]; // NaN and the infinities
  const known = ofType[typeof value] ?? ofClass.find(([is]) => is(value))?.[1];
  return known ?? [`an instance of ${className(value)}`, "send a plain object"];
}

// The name of a class is code, not data; but anybody may have put anything there.
function className(value: unknown): string {
  const name = (value as { readonly constructor?: { readonly name?: unknown } }).constructor?.name;
  return typeof name === "string" && /^[\w$]{1,64}$/.test(name) ? name : "a class";
}
