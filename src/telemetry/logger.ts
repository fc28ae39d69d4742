import { currentMessageContext } from "../message/index.ts";
import { systemClock, type Clock } from "../runtime/index.ts";

import { isAlwaysLogged, logLevelFor, type LogLevel } from "./event-catalogue.ts";
import type { TelemetryContext, TelemetryName } from "./events.ts";
import { jsonLine, prettyLine, type LogRecord } from "./log-line.ts";
import { dropFailure, type Observer } from "./observer.ts";
import { withoutPasswords } from "./printable.ts";
import { RepeatGuard } from "./repeat-guard.ts";

export type LogFormat = "auto" | "json" | "pretty";

export interface LoggerOptions {
  /** The least important level that is written. Default "info". */
  readonly level?: LogLevel;
  /** "auto" is pretty on a terminal and JSON everywhere else. Default "auto". */
  readonly format?: LogFormat;
  /** Written on every line, such as the service's name. */
  readonly bindings?: Readonly<Record<string, string>>;
  /** Where whole lines go, line end included. Default: standard error. */
  readonly write?: (line: string) => void;
  readonly clock?: Clock;
}

type Value = LogRecord["fields"][string];

const RANK = { debug: 0, info: 1, warn: 2, error: 3, silent: 4 } as const;
const MAX_TEXT_LENGTH = 1_000;
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/;

/** An observer that writes one line per event. Most equal troubles are counted instead of repeated without end. */
export function logger(options: LoggerOptions = {}): Observer {
  const { level = "info", bindings = {}, clock = systemClock } = options;
  const write = options.write ?? ((line: string) => void process.stderr.write(line));
  const format = lineFormat(options.format ?? "auto");
  const guard = new RepeatGuard({ clock, burst: 5, windowMs: 10_000, kinds: 200 });
  return {
    emit(name, fields, context) {
      const own = logLevelFor(name, fields);
      if (RANK[own] < RANK[level]) return;
      const plain = plainFields(fields);
      // Who asks for debug lines wants all of them.
      const all = own === "debug" || isAlwaysLogged(name);
      const suppressed = all ? 0 : guard.admit(`${own} ${repeatKey(name, plain)}`);
      if (suppressed === undefined) return;
      const repeated = suppressed > 0 ? { suppressed } : {};
      const record = {
        timeMs: clock.wallMs(),
        level: own,
        event: name,
        fields: {
          ...bindings,
          ...contextFields(context),
          ...(isAboutSagas(name) ? { stream: "saga" } : {}),
          ...plain,
          ...repeated,
        },
      };
      dropFailure(write(`${format(record)}\n`));
    },
  };
}

/** The stream of its own for sagas: a line for every step of every saga, whatever the level. */
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

// Only single values pass: whatever else may one day slip into an event, a payload is not printed by accident.
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

// What is told while a message is handled is told on its behalf, whoever tells it.
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

// Ids and figures differ from line to line although the trouble is one and the same.
function repeatKey(
  name: TelemetryName,
  { topic, consumer, scope, doing, reason, error }: Record<string, Value>,
): string {
  const trouble =
    typeof error === "string" ? error.slice(0, 200).replace(/[0-9a-f]*\d[0-9a-f-]*/gi, "#") : "";
  return [name, topic, consumer, scope, doing, reason, trouble].join("\u0000");
}

// Cut generously before the search for passwords, so that none loses the part it is recognised by.
function cleanText(text: string): string {
  const safe = withoutPasswords(text.slice(0, 10 * MAX_TEXT_LENGTH));
  return safe.length <= MAX_TEXT_LENGTH ? safe : `${safe.slice(0, MAX_TEXT_LENGTH)}…`;
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
