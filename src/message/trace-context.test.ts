import { expect, test } from "vitest";
import {
  newChildSpan,
  formatTraceparent,
  formatTracestate,
  newTrace,
  parseTraceparent,
  parseTracestate,
} from "./message-context.ts";

const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const spanId = "00f067aa0ba902b7";
const bytes = (byte: number) => (size: number) => new Uint8Array(size).fill(byte);

test("a traceparent is read and written unchanged", () => {
  const text = `00-${traceId}-${spanId}-01`;
  const trace = parseTraceparent(text);
  expect(trace).toEqual({ traceId, spanId, flags: "01" });
  expect(formatTraceparent(trace ?? { traceId: "", spanId: "", flags: "" })).toBe(text);
});

test("a later version with more fields is understood", () => {
  expect(parseTraceparent(`cc-${traceId}-${spanId}-01-what-the-future-holds`)).toEqual({
    traceId,
    spanId,
    flags: "01",
  });
});

test.each([
  undefined,
  "",
  `ff-${traceId}-${spanId}-01`,
  `00-${traceId}-${spanId}-01-more`,
  `00-${traceId}-${spanId}`,
  `00-${"0".repeat(32)}-${spanId}-01`,
  `00-${traceId}-${"0".repeat(16)}-01`,
  `00-${traceId.toUpperCase()}-${spanId}-01`,
  `00-${traceId}-${spanId}-01\n`,
])("%j is no traceparent", (text) => {
  expect(parseTraceparent(text)).toBeUndefined();
});

test("a child stays in its trace and keeps the flags, with a span of its own", () => {
  const child = newChildSpan({ traceId, spanId, flags: "00" }, bytes(0xab));
  expect(child).toEqual({ traceId, spanId: "abababababababab", flags: "00" });
});

test("a new trace is valid even if all random bytes are zero", () => {
  expect(parseTraceparent(formatTraceparent(newTrace(bytes(0))))).toBeDefined();
});

test("a tracestate is read member by member", () => {
  const members = parseTracestate("rojo=00f067aa0ba902b7, congo=t61rcWkgMzE,,");
  expect(members).toEqual(["rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE"]);
  expect(formatTracestate(members ?? [])).toBe("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
});

test.each(["", "novalue", "A=1", "a=1,a=2", "a=\u0001", "x".repeat(513), undefined])(
  "the tracestate %j is dropped",
  (text) => {
    expect(parseTracestate(text)).toBeUndefined();
  },
);
