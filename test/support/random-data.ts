import fc from "fast-check";
import { onTestFinished } from "vitest";
import type { Message } from "../../src/message/index.ts";

/** Returns a pseudo-random generator: the same seed gives the same numbers between 0 and 1. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const printable = (text: string): boolean => !/\p{Cc}|\p{Cs}/u.test(text) && text.trim() !== "";
const graphemes = (maxLength: number) =>
  fc
    .string({ unit: "grapheme", minLength: 1, maxLength })
    .filter((text) => printable(text) && text.length <= 255);

const id = fc.oneof(
  fc.uuid(),
  graphemes(40),
  fc.constantFrom("%41", 'a "quoted" id', " a ", "東京 😀", "a\\b"),
);
const text = graphemes(30);
const headerName = fc
  .stringMatching(/^[a-z0-9][a-z0-9._-]{0,20}$/)
  .filter((name) => !/^(ce[-_]|cloudevents_|nats-|constructor$|prototype$|content-type$)/.test(name));
const headerValue = fc
  .oneof(
    fc.string({ unit: "grapheme", maxLength: 20 }),
    fc.string({
      unit: fc.constantFrom(" ", "\t", "%", "4", "1", ":", '"', "\\", "ä", "\u0001", "\u0080", "😀"),
    }),
  )
  .filter((value) => !/[\r\n\0]|\p{Cs}/u.test(value));
const headers = fc.dictionary(
  fc.oneof(headerName, fc.constantFrom("sagabox-claim", "sagabox-sealed", "sagabox-undoes")),
  headerValue,
  { noNullPrototype: true, maxKeys: 4 },
);

const data = fc.oneof(
  fc.json({ stringUnit: "grapheme" }),
  fc.constantFrom(
    "null",
    "false",
    "0",
    '""',
    '"data"',
    "12345678901234567890.10",
    "1e400",
    '{"n":9007199254740993,"m":1.10}',
    '{ "data" : [ 1 , 2 ] }',
    '{"data":{"data":"}\\"{"},"specversion":"2.0"}',
  ),
);

const pad = (value: number, digits: number): string => String(value).padStart(digits, "0");
const time = fc
  .tuple(
    fc.integer({ min: 1_000, max: 9_999 }),
    fc.integer({ min: 1, max: 12 }),
    fc.integer({ min: 1, max: 28 }),
  )
  .chain(([year, month, day]) =>
    fc
      .constantFrom("", ".1", ".123", ".123456", ".000001")
      .map((fraction) => `${pad(year, 4)}-${pad(month, 2)}-${pad(day, 2)}T03:04:05${fraction}Z`),
  );

const hex = (length: number) => fc.stringMatching(new RegExp(`^[0-9a-f]{${length - 1}}[1-9a-f]$`));

/** Any message that may be published, with the odd ones more often than life has them. */
export const anyMessage: fc.Arbitrary<Message> = fc.record({
  id,
  kind: fc.constantFrom("event", "command", "stream"),
  type: fc.stringMatching(/^[A-Za-z][A-Za-z0-9._-]{0,40}$/),
  schemaVersion: fc.integer({ min: 1, max: 999_999_999 }),
  topic: fc.stringMatching(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,40}$/),
  key: fc.option(id),
  data,
  headers,
  correlationId: id,
  causationId: fc.option(id),
  traceparent: fc.tuple(hex(32), hex(16)).map(([trace, span]) => `00-${trace}-${span}-01`),
  sagaId: fc.option(id),
  aggregateType: fc.option(text),
  aggregateId: fc.option(id),
  source: text,
  target: fc.option(text),
  priority: fc.integer({ min: 0, max: 9 }),
  writtenAt: time,
  expiresAt: fc.option(time),
});

/** Leaves out stack traces, which take most of the time when a hundred thousand errors are thrown. */
export function withoutStacks(): void {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  onTestFinished(() => void (Error.stackTraceLimit = stackTraceLimit));
}
