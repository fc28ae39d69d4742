import { auditFlags, quoteForShell } from "../../errors/index.ts";
import { describeUnreadLanes, type UnreadLane } from "../overview/unread-lanes.ts";
import { advice, fine, problem, durationText, type Diagnosis } from "./diagnosis.ts";

export interface RelayFacts {
  readonly relays: number;
  readonly oldest_ms: number | null;
}

const OVERDUE_MS = 60_000;

export function judgeRelay({ relays, oldest_ms: oldest }: RelayFacts): readonly Diagnosis[] {
  const waits =
    oldest === null ? "nothing waits" : `the oldest due message has waited for ${durationText(oldest)}`;
  if (relays === 0) {
    return [
      problem(
        "relay",
        `no relay is alive, ${waits}`,
        "Nothing that is published leaves the database.",
        "sagabox worker --app <your module>",
      ),
    ];
  }
  if ((oldest ?? 0) >= OVERDUE_MS) {
    return [
      problem(
        "relay",
        `${relays} relay(s) alive, but ${waits}`,
        "The transport is down or slow, or a key is held back by a message that fails.",
        "sagabox outbox list",
      ),
    ];
  }
  return [fine("relay", `${relays} alive, ${waits}`)];
}

export function judgeLanes(unread: readonly UnreadLane[]): readonly Diagnosis[] {
  if (unread.length === 0) return [fine("lanes", "every lane that is owned is read")];
  return describeUnreadLanes(unread).map(({ seen, worker }) =>
    problem(
      "lanes",
      `${seen}: owned, but not read`,
      "Later messages of the same topic have overtaken it. Other workers cannot read the lane while its owner is alive.",
      `Restart worker ${worker}; the others take its lanes over.`,
    ),
  );
}

export interface ConsumerFacts {
  readonly name: string;
  readonly members: number;
  readonly waiting: number;
  readonly topics: number;
}

export function judgeConsumers(consumers: readonly ConsumerFacts[]): readonly Diagnosis[] {
  const found = consumers.flatMap(({ name, members, waiting, topics }) => {
    if (members > 0 || (topics === 0 && waiting === 0)) return [];
    const seen = `consumer "${name}" has no live member${waiting > 0 ? `, and deliveries wait for it` : ""}`;
    const fix = `Start a worker that registers "${name}". If it is gone for good: sagabox inbox retire ${quoteForShell(name)} ${auditFlags("retired")} --yes`;
    const why = "What is sent to it waits for ever, and keeps old days of the archive from being dropped.";
    return [(waiting > 0 ? problem : advice)("consumers", seen, why, fix)];
  });
  return found.length > 0
    ? found
    : [fine("consumers", `${consumers.length} group(s), none without a member`)];
}

export interface TopicFacts {
  readonly subscriptions: number;
  /** Topics without a subscription that recently got messages other than events. */
  readonly topics: readonly string[];
  /** Topics without a subscription that recently got events only. */
  readonly events: readonly string[];
}

export function judgeTopics({ subscriptions, topics, events }: TopicFacts): readonly Diagnosis[] {
  if (subscriptions === 0) {
    return [fine("topics", "no subscriptions in this database: consumers, if any, listen at a broker")];
  }
  if (topics.length > 0) {
    return [
      advice(
        "topics",
        `no consumer has subscribed to ${listSome(topics)}`,
        "These messages are requests, and no consumer receives them.",
        "Compare with the names your consumers use: sagabox topology --app <your module>",
      ),
    ];
  }
  return [
    fine(
      "topics",
      events.length === 0
        ? "everything published lately has a consumer"
        : `everything published lately has a consumer, except events without a subscriber: ${listSome(events)}`,
    ),
  ];
}

function listSome(names: readonly string[]): string {
  return `${names.slice(0, 10).join(", ")}${names.length > 10 ? ` and ${names.length - 10} more` : ""}`;
}

export interface DeadLetterFacts {
  readonly open: number;
  readonly oldest_ms: number | null;
  readonly retention_ms: number | null;
}

const DEFAULT_RETENTION_MS = 14 * 86_400_000;

export function judgeDeadLetters({
  open,
  oldest_ms: oldest,
  retention_ms: kept,
}: DeadLetterFacts): readonly Diagnosis[] {
  if (open === 0) return [fine("dead letters", "none open")];
  const retention = kept ?? DEFAULT_RETENTION_MS;
  const seen = `${open >= 10_000 ? "10000 or more" : open} open, the oldest for ${durationText(oldest ?? 0)}`;
  const why = `Each is a message that did not reach its end. They are deleted ${durationText(retention)} after their death.`;
  const soon = (oldest ?? 0) >= retention * 0.8;
  return [(soon ? problem : advice)("dead letters", seen, why, "sagabox dlq groups")];
}

export interface SagaFacts {
  readonly reason: "incident" | "unclaimed" | "held" | "slow";
  readonly id: string;
  readonly why: string;
}

export function judgeSagas(stuck: readonly SagaFacts[]): readonly Diagnosis[] {
  if (stuck.length === 0) return [fine("sagas", "none is stuck")];
  const reasons = [...new Set(stuck.map(({ reason }) => reason))];
  return reasons.map((reason) => {
    const same = stuck.filter((one) => one.reason === reason);
    const seen = `${same.length >= 100 ? "100 or more" : same.length} ${reason}, such as ${same[0]?.id ?? "?"}: ${same[0]?.why ?? ""}`;
    const fix = "sagabox saga stuck";
    return (reason === "slow" ? advice : problem)(
      "sagas",
      seen,
      "They do not continue without an operator.",
      fix,
    );
  });
}

export interface SealFacts {
  readonly unsealed_ms: number | null;
}

export function judgeSeals({ unsealed_ms: lag }: SealFacts): readonly Diagnosis[] {
  if ((lag ?? 0) < 900_000)
    return [fine("audit log", lag === null ? "sealed to its end" : `sealed up to ${durationText(lag)} ago`)];
  return [
    problem(
      "audit log",
      `rows have not been sealed for ${durationText(lag ?? 0)}`,
      "Until they are sealed, changes of them cannot be detected.",
      "Run a worker with the part upkeep, or once: sagabox audit seal. A long transaction holds it up too.",
    ),
  ];
}

export interface ConservationFacts {
  readonly age_ms: number | null;
  readonly wrong: number;
  /** Windows that were too busy in the last pass. */
  readonly missed: number;
}

export function judgeConservation({ age_ms: age, wrong, missed }: ConservationFacts): readonly Diagnosis[] {
  if (wrong > 0) {
    return [
      problem(
        "conservation",
        `${wrong} place(s) where something written is not accounted for`,
        "A message was lost, or is in two states at once.",
        "sagabox verify",
      ),
    ];
  }
  if (age === null || age >= 7_200_000) {
    return [
      advice(
        "conservation",
        age === null ? "never checked here" : `last checked ${durationText(age)} ago`,
        "A lost message would not be noticed.",
        "Run a worker with the part upkeep, or once: sagabox verify",
      ),
    ];
  }
  if (missed > 0) {
    return [
      advice(
        "conservation",
        `${missed} window(s) of messages were too busy to be checked`,
        "A message that is lost there would not be noticed.",
        "Find out what keeps the tables busy. To check everything now, with retries: sagabox verify",
      ),
    ];
  }
  return [fine("conservation", `everything is accounted for, checked ${durationText(age)} ago`)];
}
