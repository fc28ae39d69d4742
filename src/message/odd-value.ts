/** What a value is that JSON cannot carry, and what to send instead. Never what it holds: that may be personal. */
export function describeOddValue(value: unknown): string {
  const [what, remedy] = classifyOddValue(value);
  return `is ${what}, which JSON cannot carry unchanged; ${remedy}`;
}

type OddValue = readonly [what: string, remedy: string];

const oddTypes: Partial<Record<string, OddValue>> = {
  bigint: ["a BigInt", "send it as text"],
  function: ["a function", "leave it out"],
  symbol: ["a symbol", "leave it out"],
  undefined: ["undefined", "send null"],
};

const oddClasses: readonly (readonly [is: (value: unknown) => boolean, odd: OddValue])[] = [
  [(value) => value instanceof Date, ["a Date", "send its toISOString()"]],
  [(value) => value instanceof Map, ["a Map", "send an object, or a list of pairs"]],
  [(value) => value instanceof Set, ["a Set", "send a list"]],
  [(value) => ArrayBuffer.isView(value), ["bytes", "send them as base64, or attach them with bus.attach()"]],
  [(value) => Array.isArray(value), ["a list with toJSON", "send a plain list"]],
];

function classifyOddValue(value: unknown): OddValue {
  if (typeof value === "number") return [String(value), "send null, or leave it out"]; // NaN and the infinities
  const known = oddTypes[typeof value] ?? oddClasses.find(([is]) => is(value))?.[1];
  return known ?? [`an instance of ${readClassName(value)}`, "send a plain object"];
}

// The name of a class is code, not data; but anybody may have put anything there.
function readClassName(value: unknown): string {
  const name = (value as { readonly constructor?: { readonly name?: unknown } }).constructor?.name;
  return typeof name === "string" && /^[\w$]{1,64}$/.test(name) ? name : "a class";
}
