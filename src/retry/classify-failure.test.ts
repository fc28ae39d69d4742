import { expect, test } from "vitest";
import { ignore, PayloadError, permanent, retryAfter, SagaboxError } from "../errors/index.ts";
import { classifyFailure } from "./index.ts";

const withCode = (code: string, message = "boom") => Object.assign(new Error(message), { code });

test.each([
  "08000",
  "08003",
  "08006",
  "57P01",
  "57P02",
  "57P03",
  "53000",
  "53100",
  "53200",
  "53300",
  "40001",
  "40P01",
  "55P03",
  "57014",
  "25006",
])("SQLSTATE %s is a failure of the database, not of the message", (code) => {
  expect(classifyFailure(withCode(code))).toBe("infrastructure");
});

test.each(["23505", "22P02", "42P01", "P0001", "25P02", "28P01"])(
  "SQLSTATE %s is the message's own failure",
  (code) => {
    expect(classifyFailure(withCode(code))).toBe("retryable");
  },
);

test.each(["ECONNREFUSED", "ECONNRESET", "EPIPE", "ETIMEDOUT", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH"])(
  "a handler's own call that fails with %s counts as an attempt",
  (code) => {
    expect(classifyFailure(withCode(code))).toBe("retryable");
  },
);

test.each([
  "Connection terminated unexpectedly",
  "Connection terminated due to connection timeout",
  "Connection terminated",
  "timeout exceeded when trying to connect",
  "Client has encountered a connection error and is not queryable",
])("the driver's error %s is a failure of the database", (message) => {
  expect(classifyFailure(new Error(message))).toBe("infrastructure");
});

test("a driver's error is found inside the wrapper of an object mapper", () => {
  const wrapped = new Error("Failed query: insert into …", { cause: withCode("40001") });
  expect(classifyFailure(wrapped)).toBe("infrastructure");
});

test("a failed call to another service counts as an attempt", () => {
  const failedFetch = new TypeError("fetch failed", { cause: withCode("ECONNREFUSED") });
  expect(classifyFailure(failedFetch)).toBe("retryable");
});

test.each([
  ["pl_exec.c", "exec_stmt_raise"],
  ["plpy_elog.c", "PLy_elog_impl"],
  ["postgres.c", "exec_bind_message"],
  ["dblink.c", "dblink_res_error"],
  ["connection.c", "pgfdw_report_error"],
])("a SQLSTATE that user code raised (%s, %s) is the message's own", (file, routine) => {
  for (const code of ["08P01", "40001", "57P01", "53100"]) {
    expect(classifyFailure(Object.assign(withCode(code), { file, routine }))).toBe("retryable");
    const own = { file: "postgres.c", routine: "ProcessInterrupts" };
    expect(classifyFailure(Object.assign(withCode(code), own))).toBe("infrastructure");
  }
});

test("a transaction that was committed early is never retried, regardless of the user's classifier", () => {
  const error = new SagaboxError("TRANSACTION_COMMITTED", "x");
  expect(classifyFailure(error, () => "retryable")).toBe("permanent");
});

test("unreadable payloads and envelopes are permanent failures", () => {
  expect(classifyFailure(new PayloadError("PAYLOAD_INVALID", "x"))).toBe("permanent");
  expect(classifyFailure(new PayloadError("PAYLOAD_VERSION_UNKNOWN", "x"))).toBe("permanent");
  expect(classifyFailure(new SagaboxError("ENVELOPE_INVALID", "x"))).toBe("permanent");
  expect(classifyFailure(new SagaboxError("MESSAGE_ID_MISSING", "x"))).toBe("permanent");
});

test("SagaboxErrors about the database and the broker do not count as attempts", () => {
  expect(classifyFailure(new SagaboxError("STORAGE_UNAVAILABLE", "x"))).toBe("infrastructure");
  expect(classifyFailure(new SagaboxError("TRANSPORT_UNREACHABLE", "x"))).toBe("infrastructure");
  expect(classifyFailure(new SagaboxError("HANDLER_TIMEOUT", "x"))).toBe("retryable");
});

test.each([new Error("out of stock"), "a text", undefined, null, 42, {}])("%o is tried again", (thrown) => {
  expect(classifyFailure(thrown)).toBe("retryable");
});

test("a verdict takes precedence over any classifier", () => {
  expect(classifyFailure(permanent("closed"), () => "retryable")).toBe("permanent");
  expect(classifyFailure(retryAfter("1s"), () => "permanent")).toBe("retryable");
  expect(classifyFailure(ignore("cancelled"))).toBe("permanent");
});

test("the user's classifier comes before the default one and may return undefined", () => {
  const classifier = (error: unknown) => (error instanceof RangeError ? "permanent" : undefined);
  expect(classifyFailure(new RangeError("x"), classifier)).toBe("permanent");
  expect(classifyFailure(withCode("08006"), classifier)).toBe("infrastructure");
});

test("a classifier that throws or returns an unknown kind falls back to the default one", () => {
  const broken = (error: unknown) =>
    (error as { code: string }).code.startsWith("23") ? "permanent" : undefined;
  expect(classifyFailure(new Error("without a code"), broken)).toBe("retryable");
  expect(classifyFailure(withCode("08006"), () => "transient" as never)).toBe("infrastructure");
  expect(classifyFailure(withCode("08006"), (async () => "permanent") as never)).toBe("infrastructure");
});

test("circular causes are followed a limited number of times", () => {
  const error: Error & { cause?: unknown } = new Error("x");
  error.cause = error;
  expect(classifyFailure(error)).toBe("retryable");
});
