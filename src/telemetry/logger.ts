import { currentMessageContext } from "../message/index.ts";
import { after, type CancelTimer, type Clock, systemClock } from "../runtime/index.ts";
import type { LogLevel } from "./event.ts";
import { isAlwaysLogged, logLevelFor, type TelemetryContext, type TelemetryName } from "./events.ts";
import { dropFailure, type Observer } from "./observer.ts";
import { printable, printableJson, withoutPasswords } from "./printable.ts";

export type LogFormat = "auto" | "json" | "pretty";

export interface LoggerOptions {
  /** The least severe level that is written. Default "info". */
  readonly level?: LogLevel;
  /** "auto" is pretty on a terminal and JSON everywhere else. Default "auto". */
  readonly format?: LogFormat;
  /** Fields added to every line, such as the service name. */
  readonly bindings?: Readonly<Record<string, string>>;
  /** Writes one complete line, with its line end. Default: standard error. */
  readonly write?: (line: string) => void;
  readonly clock?: Clock;
}

type Value = LogRecord["fields"][string];

const RANK = { debug: 0, info: 1, warn: 2, error: 3, silent: 4 } as const;
const MAX_TEXT_LENGTH = 1_000;
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/;

/**
 * Creates an observer that logs one line per event. Lines about one trouble (the same event, type and cause) are limited:
 * after a few of them, only the last one of each window is written, with the number of lines left out.
 */
export function logger(options: LoggerOptions = {}): Observer {
  const { level = "info", bindings = {}, clock = systemClock } = options;
  const write = options.write ?? ((line: string) => void process.stderr.write(line));
  const format = lineFormat(options.format ?? "auto");
  const writeRecord = (record: LogRecord): void => dropFailure(write(`${format(record)}\n`));
  const guard = new RepeatGuard({ clock, burst: 5, windowMs: 10_000, kinds: 200, write: writeRecord });
  return {
    emit(name, fields, context) {
      const own = logLevelFor(name, fields);
      if (RANK[own] < RANK[level]) return;
      const plain = plainFields(fields);
      const record: LogRecord = {
        timeMs: clock.wallMs(),
        level: own,
        event: name,
        fields: {
          ...bindings,
          ...contextFields(context),
          ...(isAboutSagas(name) ? { stream: "saga" } : {}),
          ...plain,
        },
      };
      // A worker that has stopped may belong to a process that ends before the window does.
      if (name === "worker.stopped") guard.flush();
      if (own === "debug" || isAlwaysLogged(name)) writeRecord(record);
      else guard.write(`${own} ${repeatKey(name, plain)}`, record);
    },
  };
}

/** Creates an observer that logs one line for every step of every saga, regardless of level. */
export function sagaLog(options: LoggerOptions & Required<Pick<LoggerOptions, "write">>): Observer {
  const { clock = systemClock, bindings = {}, write } = options;
  const format = lineFormat(options.format ?? "auto");
  return {
    emit(name, fields, context) {
      if (!isAboutSagas(name)) return;
      const level = logLevelFor(name, fields);
      const line = { ...bindings, ...contextFields(context), stream: "saga", ...plainFields(fields) };
      dropFailure(write(`${format({ timeMs: clock.wallMs(), level, event: name, fields: line })}\n`));
    },
  };
}

function isAboutSagas(name: TelemetryName): boolean {
  return name.startsWith("saga.");
}

function lineFormat(format: LogFormat): (record: LogRecord) => string {
  if (format === "json" || (format === "auto" && process.stderr.isTTY !== true)) return jsonLine;
  const colour = process.stderr.isTTY === true && !process.env["NO_COLOR"];
  return (record) => prettyLine(record, colour);
}

// Only scalar values pass, so that a payload in an event is never printed by accident.
function plainFields(fields: object): Record<string, Value> {
  const plain: Record<string, Value> = {};
  for (const [name, value] of Object.entries(fields) as [string, unknown][]) {
    if (typeof value === "string") plain[snakeCase(name)] = cleanText(value);
    else if (typeof value === "number" || typeof value === "boolean" || value === null) {
      plain[snakeCase(name)] = value;
    }
  }
  return plain;
}

// Events emitted while a message is handled carry the context of that message.
function contextFields(
  context: TelemetryContext | undefined = currentMessageContext(),
): Record<string, Value> {
  const traceId = TRACEPARENT.exec(context?.traceparent ?? "")?.[1];
  const sagaId = context?.sagaId ?? undefined;
  return {
    ...(traceId === undefined ? {} : { trace_id: traceId }),
    ...(sagaId === undefined ? {} : { saga_id: cleanText(sagaId) }),
  };
}

// Ids and numbers are left out, because they differ between lines about one problem.
function repeatKey(
  name: TelemetryName,
  { type, topic, consumer, scope, transport, doing, kind, reason, error }: Record<string, Value>,
): string {
  const trouble =
    typeof error === "string" ? error.slice(0, 200).replace(/[0-9a-f]*\d[0-9a-f-]*/gi, "#") : "";
  return [name, type, topic, consumer, scope, transport, doing, kind, reason, trouble].join("\u0000");
}

// Cut at ten times the limit before searching for passwords, so that a cut does not hide the end of one.
function cleanText(text: string): string {
  const safe = withoutPasswords(text.slice(0, 10 * MAX_TEXT_LENGTH));
  return safe.length <= MAX_TEXT_LENGTH ? safe : `${safe.slice(0, MAX_TEXT_LENGTH)}…`;
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

interface LogRecord {
  readonly timeMs: number;
  readonly level: Exclude<LogLevel, "silent">;
  readonly event: string;
  readonly fields: Readonly<Record<string, string | number | boolean | null>>;
}

/** Formats a record as one JSON object, without the line end. */
function jsonLine({ timeMs, level, event, fields }: LogRecord): string {
  const rounded = Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, round(value)]));
  return printableJson({ time: new Date(timeMs).toISOString(), level, event, ...rounded });
}

const COLOURS = { debug: 90, info: 36, warn: 33, error: 31 } as const;

/** Formats a record for people: time, level, event, then name=value pairs. */
function prettyLine({ timeMs, level, event, fields }: LogRecord, colour: boolean): string {
  const paint = (code: number, text: string): string => (colour ? `\u001b[${code}m${text}\u001b[0m` : text);
  const pairs = Object.entries(fields).map(
    ([name, value]) => `${paint(90, `${name}=`)}${formatValue(value)}`,
  );
  const time = new Date(timeMs).toISOString().slice(11, 23);
  return [paint(90, time), paint(COLOURS[level], level.padEnd(5)), printable(event), ...pairs].join(" ");
}

// Microseconds are precise enough for durations in milliseconds.
function round<T>(value: T): T | number {
  return typeof value === "number" ? Math.round(value * 1_000) / 1_000 : value;
}

function formatValue(value: string | number | boolean | null): string {
  if (typeof value !== "string") return String(round(value));
  return /^[\w.:/@+-]+$/.test(value) ? value : `"${printable(value.replaceAll('"', "'"))}"`;
}

interface RepeatGuardOptions {
  readonly clock: Clock;
  /** How many similar lines pass in one window. */
  readonly burst: number;
  readonly windowMs: number;
  /** How many kinds of line are tracked; all others share one allowance. */
  readonly kinds: number;
  readonly write: (record: LogRecord) => void;
}

interface Kind {
  startedMs: number;
  passed: number;
  suppressed: number;
  /** The last suppressed line. It is written at the end of the window, if no similar line passes before. */
  last: LogRecord | undefined;
  cancelTimer: CancelTimer | undefined;
}

/** Passes a few similar lines per window and counts the rest, so that a broken database cannot fill a disk. */
class RepeatGuard {
  readonly #options: RepeatGuardOptions;
  readonly #kinds = new Map<string, Kind>();

  constructor(options: RepeatGuardOptions) {
    this.#options = options;
  }

  /** Writes the line, or suppresses it if enough similar lines passed in this window. */
  write(key: string, record: LogRecord): void {
    const { clock, burst, windowMs } = this.#options;
    const nowMs = clock.monotonicMs();
    const kind = this.#kind(key, nowMs);
    const leftMs = kind.startedMs + windowMs - nowMs;
    if (leftMs <= 0) {
      kind.startedMs = nowMs;
      kind.passed = 0;
    }
    if (kind.passed < burst) return this.#pass(kind, record);
    kind.suppressed += 1;
    kind.last = record;
    kind.cancelTimer ??= after(leftMs, () => this.#writeLast(kind), { unref: true });
  }

  /** Writes the last suppressed line of each kind, with the number of those before it. */
  flush(): void {
    for (const kind of this.#kinds.values()) this.#writeLast(kind);
  }

  #writeLast(kind: Kind): void {
    if (kind.last === undefined) return;
    kind.suppressed -= 1;
    kind.startedMs = this.#options.clock.monotonicMs();
    kind.passed = 0;
    this.#pass(kind, kind.last);
  }

  #pass(kind: Kind, record: LogRecord): void {
    const { suppressed } = kind;
    kind.passed += 1;
    kind.suppressed = 0;
    kind.last = undefined;
    kind.cancelTimer?.();
    kind.cancelTimer = undefined;
    this.#options.write(suppressed === 0 ? record : { ...record, fields: { ...record.fields, suppressed } });
  }

  #kind(key: string, nowMs: number): Kind {
    const known = this.#kinds.get(key);
    if (known !== undefined) return known;
    if (this.#kinds.size >= this.#options.kinds) {
      this.#forgetQuiet(nowMs);
      if (this.#kinds.size >= this.#options.kinds && key !== OTHER) return this.#kind(OTHER, nowMs);
    }
    const kind: Kind = {
      startedMs: nowMs,
      passed: 0,
      suppressed: 0,
      last: undefined,
      cancelTimer: undefined,
    };
    this.#kinds.set(key, kind);
    return kind;
  }

  #forgetQuiet(nowMs: number): void {
    for (const [key, kind] of this.#kinds) {
      if (kind.suppressed === 0 && nowMs - kind.startedMs >= this.#options.windowMs) this.#kinds.delete(key);
    }
  }
}

const OTHER = "\u0000other";
