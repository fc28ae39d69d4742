import { expect, onTestFinished, test, vi } from "vitest";
import { runInMessageContext } from "../message/index.ts";
import { logger, sagaLog, type LoggerOptions } from "./logger.ts";

function setup(options: LoggerOptions = {}) {
  const lines: string[] = [];
  const time = { ms: 0 };
  const clock = { wallMs: () => Date.UTC(2026, 0, 2, 3, 4, 5, 6) + time.ms, monotonicMs: () => time.ms };
  const observer = logger({ format: "json", write: (line) => lines.push(line), clock, ...options });
  return { observer, lines, time, parsed: () => lines.map((line) => JSON.parse(line) as object) };
}

const failed = {
  id: "m-1",
  type: "order.placed",
  topic: "orders",
  attempt: 2,
  delayMs: 4000,
  reason: "rejected",
  error: "too big",
};

test("G4: an event becomes one JSON line with time, level, trace id, saga id and its fields", () => {
  const { observer, lines, parsed } = setup({ bindings: { service: "shop" } });
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  observer.emit("relay.failed", failed, { traceparent, sagaId: "saga-7" });
  expect(lines[0]).toMatch(/^\{.*\}\n$/);
  expect(parsed()).toEqual([
    {
      time: "2026-01-02T03:04:05.006Z",
      level: "warn",
      event: "relay.failed",
      service: "shop",
      trace_id: "0af7651916cd43dd8448eb211c80319c",
      saga_id: "saga-7",
      id: "m-1",
      type: "order.placed",
      topic: "orders",
      attempt: 2,
      delay_ms: 4000,
      reason: "rejected",
      error: "too big",
    },
  ]);
});

test("G4: a message without a saga and with an unreadable trace has neither id on its line", () => {
  const { observer, parsed } = setup();
  observer.emit("relay.failed", failed, { traceparent: "nonsense", sagaId: null });
  expect(parsed()[0]).not.toHaveProperty("trace_id");
  expect(parsed()[0]).not.toHaveProperty("saga_id");
});

test("lines below the level are not written, and silent writes none", () => {
  const info = setup();
  info.observer.emit("relay.batch", { count: 1, durationMs: 1 });
  info.observer.emit("worker.stopping", { worker: "w" });
  expect(info.lines).toHaveLength(1);
  const silent = setup({ level: "silent" });
  silent.observer.emit("storage.failed", { doing: "x", error: "y", retryInMs: 1 });
  expect(silent.lines).toEqual([]);
});

test("text from a sender can neither forge a log line nor colour the terminal", () => {
  for (const format of ["json", "pretty"] as const) {
    const { observer, lines } = setup({ format });
    const error = 'x\r\n{"level":"info"}\u001b[2J\u202e\u2028\u009b31m';
    observer.emit("storage.failed", { doing: "reading", error, retryInMs: 1 });
    expect(lines).toHaveLength(1);
    // eslint-disable-next-line no-control-regex -- control characters are what this is about
    expect(lines[0]?.slice(0, -1)).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202e\u2028]/);
  }
});

test("passwords in connection addresses are not written, and long texts are cut", () => {
  const { observer, lines } = setup();
  const error = `connect postgres://app:canary-8841@db/x ${"y".repeat(50_000)}`;
  observer.emit("storage.failed", { doing: "reading", error, retryInMs: 1 });
  expect(lines[0]).not.toContain("canary-8841");
  expect(lines[0]?.length).toBeLessThan(1_300);
});

test("a value that is not a string, number or boolean is left out", () => {
  const { observer, lines } = setup();
  observer.emit("worker.stopping", Object.assign({ worker: "w" }, { data: { card: "canary-4111" } }));
  expect(lines[0]).not.toContain("canary-4111");
});

test("ten thousand similar errors write a few lines, and the next one has the number of suppressed lines", () => {
  const { observer, lines, time, parsed } = setup();
  for (let i = 0; i < 10_000; i++) {
    const error = `connect ECONNREFUSED 127.0.0.1:${i}`;
    observer.emit("storage.failed", { doing: "reading", error, retryInMs: i });
  }
  expect(lines).toHaveLength(5);
  time.ms += 10_000;
  observer.emit("storage.failed", {
    doing: "reading",
    error: "connect ECONNREFUSED 127.0.0.1:1",
    retryInMs: 1,
  });
  expect(parsed()[5]).toMatchObject({ suppressed: 9_995 });
});

test("suppressed lines without a next one are counted on the last of them, when the window ends", () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const { observer, time, parsed } = setup();
  for (let i = 1; i <= 1_000; i++) {
    time.ms = i;
    observer.emit("storage.failed", { doing: "reading", error: "no route", retryInMs: i });
  }
  expect(parsed()).toHaveLength(5);
  time.ms = 10_001;
  vi.advanceTimersByTime(10_000);
  expect(parsed()).toHaveLength(6);
  expect(parsed()[5]).toMatchObject({
    retry_in_ms: 1_000,
    suppressed: 994,
    time: "2026-01-02T03:04:06.006Z",
  });
  vi.advanceTimersByTime(60_000);
  expect(parsed()).toHaveLength(6);
});

test("a worker that stops writes the number of suppressed lines first", () => {
  const { observer, parsed } = setup();
  for (let i = 1; i <= 9; i++)
    observer.emit("storage.failed", { doing: "reading", error: "no route", retryInMs: i });
  observer.emit("worker.stopped", { worker: "w", durationMs: 1, clean: true });
  expect(parsed().slice(5)).toMatchObject([
    { event: "storage.failed", retry_in_ms: 9, suppressed: 3 },
    { event: "worker.stopped" },
  ]);
});

test("G4: every change of every saga is logged, also of those that fail", () => {
  const { observer, parsed } = setup();
  for (let n = 0; n < 200; n++) {
    const names = { type: "order", id: `s-${n}`, key: `o-${n}`, cause: "clock" };
    observer.emit("saga.changed", { ...names, from: "started", to: "running", step: "pay", error: null });
    observer.emit("saga.changed", {
      ...names,
      from: "running",
      to: "failed",
      step: "pay",
      error: "declined",
    });
  }
  expect(parsed()).toHaveLength(400);
});

test("lines are limited by event, type and cause", () => {
  const { observer, parsed } = setup();
  for (let n = 0; n < 20; n++) {
    for (const type of ["order", "refund"]) {
      for (const error of ["no route", "too many connections"]) {
        const names = { type, id: `s-${n}`, key: `o-${n}`, step: null };
        observer.emit("saga.failed", { ...names, error, retryInMs: 20 });
      }
    }
  }
  expect(parsed()).toHaveLength(20);
});

test("E2: every retry and every dead letter is logged, even if many are similar", () => {
  const { observer, parsed } = setup();
  const names = { consumer: "billing", type: "order.placed", topic: "orders" };
  const error = "no such account";
  for (let n = 0; n < 300; n++) {
    const retried = { id: `${n}`, attempt: (n % 6) + 1, delayMs: n, countsAsAttempt: true, error };
    observer.emit("consumer.retried", { ...names, ...retried });
    observer.emit("dead_letter.buried", {
      ...names,
      id: `${n}`,
      origin: "consumer",
      reason: "exhausted",
      error,
    });
  }
  expect(parsed()).toHaveLength(600);
  expect(parsed().at(-2)).toMatchObject({ event: "consumer.retried", attempt: 6, delay_ms: 299, error });
  expect(parsed().filter((line) => "suppressed" in line)).toEqual([]);
});

test("a suspect is a warning; one whose process died while it ran alone is an error, which no warning suppresses", () => {
  const { observer, parsed } = setup();
  for (let n = 0; n < 50; n++)
    observer.emit("consumer.suspect", { consumer: "billing", id: `${n}`, crashes: 0 });
  observer.emit("consumer.suspect", { consumer: "billing", id: "killer", crashes: 1 });
  expect(parsed()[0]).toMatchObject({ level: "warn", id: "0", crashes: 0 });
  expect(parsed().at(-1)).toMatchObject({ level: "error", id: "killer", crashes: 1 });
});

test("E5: the deletion of old dead letters is a warning if some of them were open", () => {
  const { observer, parsed } = setup({ level: "debug" });
  observer.emit("history.cleaned", { table: "reply", count: 3 });
  observer.emit("history.cleaned", { table: "dead_letter", count: 3, open: 0 });
  observer.emit("history.cleaned", { table: "dead_letter", count: 3, open: 2 });
  expect(parsed()).toMatchObject([
    { level: "debug" },
    { level: "debug" },
    { level: "warn", count: 3, open: 2 },
  ]);
});

test("a repeated error does not suppress another", () => {
  const { observer, lines } = setup();
  for (let i = 0; i < 100; i++) observer.emit("relay.failed", { ...failed, id: `m-${i}` });
  observer.emit("relay.failed", { ...failed, topic: "invoices" });
  expect(lines).toHaveLength(6);
});

test("the number of different errors that are tracked is bounded", () => {
  const { observer, lines } = setup();
  const letters = (i: number) => String.fromCodePoint(0x4e00 + i);
  for (let i = 0; i < 5_000; i++) {
    observer.emit("storage.failed", { doing: letters(i), error: "e", retryInMs: 1 });
  }
  expect(lines.length).toBeLessThan(300);
});

test("debug lines are never suppressed", () => {
  const { observer, lines } = setup({ level: "debug" });
  for (let i = 0; i < 100; i++) observer.emit("relay.batch", { count: i, durationMs: 1 });
  expect(lines).toHaveLength(100);
});

test("the pretty format is one short line", () => {
  const { observer, lines } = setup({ format: "pretty" });
  observer.emit("storage.failed", { doing: "reading lanes", error: "no route", retryInMs: 200 });
  expect(lines).toEqual([
    '03:04:05.006 error storage.failed doing="reading lanes" error="no route" retry_in_ms=200\n',
  ]);
});

test("G4: an event emitted while a message is handled carries its trace id and saga id", () => {
  const { observer, parsed } = setup();
  const traceId = "0af7651916cd43dd8448eb211c80319c";
  const context = {
    messageId: "m-1",
    correlationId: "c-1",
    traceparent: `00-${traceId}-b7ad6b7169203331-01`,
  };
  runInMessageContext({ ...context, sagaId: "saga-7" }, () =>
    observer.emit("storage.failed", { doing: "reading", error: "no route", retryInMs: 1 }),
  );
  observer.emit("storage.failed", { doing: "reading", error: "no route", retryInMs: 1 });
  expect(parsed()[0]).toMatchObject({ trace_id: traceId, saga_id: "saga-7" });
  expect(parsed()[1]).not.toHaveProperty("trace_id");
});

test("G4: every saga step is written to a separate stream, regardless of the log level", () => {
  const log = setup();
  const lines: string[] = [];
  const stream = sagaLog({ level: "error", format: "json", write: (line) => lines.push(line) });
  const names = { type: "order", id: "s-1", key: "o-1", cause: "worker:w", error: null };
  const step = { ...names, step: "charge", status: "completed", durationMs: 3 };
  for (const observer of [log.observer, stream]) {
    for (let n = 0; n < 20; n++) observer.emit("saga.step", step, { sagaId: "s-1" });
    observer.emit("relay.failed", failed);
  }
  expect(lines).toHaveLength(20);
  expect(JSON.parse(lines[0] ?? "")).toMatchObject({ stream: "saga", event: "saga.step", saga_id: "s-1" });
  expect(log.parsed()).toEqual([expect.objectContaining({ event: "relay.failed" })]);
});

test("colours are used on terminals only, and not if NO_COLOR is set", () => {
  const before = Object.getOwnPropertyDescriptor(process.stderr, "isTTY");
  onTestFinished(() => {
    vi.unstubAllEnvs();
    if (before === undefined) Reflect.deleteProperty(process.stderr, "isTTY");
    else Object.defineProperty(process.stderr, "isTTY", before);
  });
  const line = (isTTY: boolean, noColor: string): string => {
    Object.defineProperty(process.stderr, "isTTY", { value: isTTY, configurable: true });
    vi.stubEnv("NO_COLOR", noColor);
    const { observer, lines } = setup({ format: "auto" });
    observer.emit("worker.stopping", { worker: "w" });
    return lines[0] ?? "";
  };
  expect(line(true, "")).toContain("\u001b[36minfo");
  expect(line(true, "1")).toBe("03:04:05.006 info  worker.stopping worker=w\n");
  expect(line(false, "")).toMatch(/^\{.*\}\n$/);
});
