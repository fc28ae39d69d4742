import type { TelemetryEvents, TelemetryName } from "./events.ts";

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

export interface EventEntry<Name extends TelemetryName = TelemetryName> {
  readonly level: Exclude<LogLevel, "silent">;
  /** The same event can be an everyday matter; `when` says to people what `is` says to the log. */
  readonly milder?: {
    readonly level: Exclude<LogLevel, "silent">;
    readonly when: string;
    is(fields: TelemetryEvents[Name]): boolean;
  };
  /** Each has its line, however many are alike: somebody will ask for this very one. */
  readonly always?: true;
  readonly meaning: string;
  readonly fields: { readonly [Field in keyof TelemetryEvents[Name]]: string };
}

/** The entries of some of the events. */
export type EventEntries<Some extends string> = {
  readonly [Name in TelemetryName & Some]: EventEntry<Name>;
};

export const consumer = "Name of the consumer.";
export const type = "Type of the message.";
export const topic = "Topic the message goes to or came from.";
export const id = "Id of the message.";
export const count = "How many messages.";
export const durationMs = "How long it took, in milliseconds.";
export const delayMs = "How long it waits, in milliseconds.";
export const attempt = "Which attempt this was, counted from 1.";
export const error = "What went wrong, in one line and without payload.";
export const scope = "Whose lanes: the relay or one consumer.";
export const lanes = "How many lanes.";
export const open = "How many destinations are open or half-open now.";
export const depth = "How many messages wait at the broker for their slowest group.";
export const via = "`hook` or `webhook`.";
export const worker = "Name of the process in leases.";
