export interface Target {
  readonly name: string;
  /** What must be reached; an upper bound where lower is better. Null for a figure that is reported and not judged. */
  readonly first: number | null;
  readonly aim: number | null;
  readonly better: "higher" | "lower";
  /** What a sketch of fifty lines reached where the bounds were set; see `references/sketch-*.ts`. */
  readonly room?: number;
}

const higher = (name: string, first: number | null = null, aim: number | null = null): Target => ({
  name,
  first,
  aim,
  better: "higher",
});
/** A bound that depends on the machine: the same share of what a sketch reaches in the same run. */
const within = (room: number, target: Target): Target => ({ ...target, room });
const lower = (name: string, first: number | null = null, aim: number | null = null): Target => ({
  name,
  first,
  aim,
  better: "lower",
});

/** Each figure with its bounds. The number is the row in the list of performance targets. */
export const targets = {
  // The list has 42 for a sketch that keeps nothing, and of that 0.66 / 0.97 for one that keeps the message.
  "P1.guide": within(28.6, higher("drain of a backlog, against claim + one update per event", 20, 35)),
  P2: within(0.66, higher("drain of a backlog, against raw lock + delete of 500", 0.45, 0.8)),
  "P3.rabbitmq": within(
    0.66,
    higher("relay into quorum queues, against the client doing the same confirmed work", 0.55, 0.8),
  ),
  "P3.rabbitmq.guide": within(9.4, higher("... against claim + one update per event, same broker", 6)),
  "P3.rabbitmq.bare": higher("... against bare publishes into one place, no headers"),
  "P3.rabbitmq.consume": higher("receive and acknowledge from quorum queues, against raw"),
  "P3.nats": within(
    0.86,
    higher("relay into JetStream, against the client doing the same confirmed work", 0.7, 0.9),
  ),
  "P3.nats.guide": within(7.2, higher("... against claim + one update per event, same broker", 6)),
  "P3.nats.bare": higher("... against bare publishes into one place, no headers"),
  "P3.nats.consume": higher("receive and acknowledge from JetStream, against raw"),
  // No sketch was tried on Kafka; the bounds take the share of the other two.
  "P3.kafka": within(
    0.61,
    higher("relay into Kafka, against the client doing the same confirmed work", 0.5, 0.8),
  ),
  "P3.kafka.guide": higher("... against claim + one update per event, same broker", 6),
  "P3.kafka.bare": higher("... against bare publishes into one place, no headers"),
  "P3.kafka.consume": higher("receive and acknowledge from Kafka, against raw"),
  // What plain SQL reached there; here it writes the same rows as the product.
  "P4.1": within(0.88, higher("business transaction with one event, 1 connection, against none", 0.7, 0.88)),
  "P4.8": within(0.81, higher("business transaction with one event, 8 connections, against none", 0.7, 0.88)),
  "P4.32": within(
    0.84,
    higher("business transaction with one event, 32 connections, against none", 0.7, 0.88),
  ),
  "P6.transaction.p50": lower("commit to publish, bus.transaction, against raw NOTIFY", 3, 1.5),
  "P6.caller.p50": lower("commit to publish, caller's transaction, against raw NOTIFY", 3, 1.5),
  "P6.optimistic.p50": lower("commit to publish, sent by the writer, against raw NOTIFY", 1, 0.7),
  "P8.wal": lower("WAL bytes per drained event, message kept", 150, 70),
  "P8.dead": lower("dead row versions per drained event", 1, 1),
  P9: higher("drain beside an old snapshot, last cycles against first", 0.9, 0.98),
  "P10.waiting": lower("fetch with a backlog waiting, against an empty table", 1.5, 1.1),
  "P10.scheduled": lower("fetch with rows scheduled for later, against an empty table", 1.5, 1.1),
  "P10.held": lower("fetch with rows behind one failing head, against an empty table", 1.5, 1.1),
  "P11.noop": higher("two relays against one, publish costs nothing", 0.85, 1.2),
  "P11.latency": higher("two relays against one, 1 ms for each publish", 1.8, 1.95),
  "P12.statement": within(
    2.19,
    higher("handler as one statement, against a transaction per message x 8", 1.6, 2),
  ),
  "P12.pipelined": higher("handlers pipelined in batches of 50, against the same", 2.2, 3.3),
  "P12.bulk": within(10.5, higher("batch handler with one statement for 50, against the same", 7, 10)),
  "P13.local": within(
    1.52,
    higher("local steps of sagas, against load, update, insert in a transaction x 8", 1.3, 1.7),
  ),
  "P13.inside": higher("transactional steps of sagas, against the same"),
  "P13.remote": higher("remote steps of sagas, command and reply, against the same"),
  "P13.dbos": higher("a saga of 3 local steps, against a workflow of DBOS", 3, 4.5),
  "C5.postgres": higher("256 kB in a store of the database, against the same in the message"),
  "C5.file": higher("256 kB in a folder, against the same in the message"),
  "C6.sealed": higher("two personal fields encrypted and decrypted, against the same in clear"),
  "G3.port": lower("calls of the tracing port without a tracer, as a share of making a message", 0.03, 0.01),
  "G3.api": lower("making a message with OpenTelemetry but no SDK, against without"),
  "G3.sdk": lower("making a message whose span is recorded, against without"),
  "weight.size": lower("unpacked JavaScript of the package, of 2 MB", 1),
  "weight.import": lower("time of importing sagabox, against importing pg-boss", 1.3),
  "weight.import.cpu": lower("... the same in processor time, which a busy machine changes less"),
  "weight.import.pg": lower("time of importing sagabox and pg, against importing pg-boss, which imports pg"),
  "weight.import.graphile": lower("time of importing sagabox, against importing graphile-worker"),
  "weight.modules": lower("files loaded by importing sagabox, against importing pg-boss"),
  P15: lower("memory of a worker with a backlog waiting, of 200 MB", 1, 0.6),
} as const satisfies Record<string, Target>;

export type TargetId = keyof typeof targets;
