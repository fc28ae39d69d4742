import type { ConsumerInfo } from "@nats-io/jetstream";
import type { TopicRequest } from "../../transport/index.ts";
import { firstSequence, findConsumer, createConsumer, type Start } from "./consumers.ts";
import { SharedRecord, type GroupRecord } from "./group-record.ts";
import { resetForNewStream, slotKey, type Slot } from "./group-state.ts";
import type { Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { findSharedStart, findOrderedStart, removeShared, removeSlots } from "./order-change.ts";
import { messageSubject, readConsumerName, streamNames, topicSubject, type GroupNames } from "./topology.ts";

export interface GroupParts {
  readonly settings: NatsSettings;
  readonly names: GroupNames;
  readonly record: GroupRecord;
  readonly topics: readonly TopicRequest[];
  readonly window: number;
  /** When the stream was created that this member has read so far; undefined before it has read any. */
  readonly streamCreated: () => string | undefined;
}

/** Makes sure that every partition of these topics has its place in the record, beginning where it was asked to. */
export async function declareSlots(session: Session, parts: GroupParts): Promise<void> {
  await checkStream(session, parts);
  for (;;) {
    const { value, revision } = await parts.record.read(session);
    const missing = parts.topics.filter(({ topic }) => !(slotKey(topic, 0) in value.slots));
    if (missing.length === 0) return;
    const made = await Promise.all(missing.map((request) => createSlots(session, parts, request)));
    const slots = { ...value.slots, ...Object.fromEntries(made.flatMap(({ entries }) => entries)) };
    if (!(await parts.record.write(session, { ...value, slots }, revision))) continue;
    const changed = made.filter(({ wasShared }) => wasShared);
    await Promise.all(changed.map(({ topic }) => removeShared(session, parts, topic)));
    return;
  }
}

/**
 * A stream that was deleted and made anew counts from 1 again, and all of it is new to the group. True if that was
 * found out, and the record now says so.
 */
export async function checkStream(session: Session, { settings, record }: GroupParts): Promise<boolean> {
  for (;;) {
    const { value, revision } = await record.read(session);
    const { created } = await session.jsm.streams.info(streamNames(settings.prefix).messages);
    if (value.born === created) return false;
    if (await record.write(session, resetForNewStream(value, created), revision))
      return value.born !== undefined;
  }
}

type LastTerm = Pick<Slot, "epoch" | "at">;

interface DeclaredSlots {
  readonly topic: string;
  readonly entries: readonly (readonly [string, Slot])[];
  readonly wasShared: boolean;
}

// Consumers first, the record after: made a second time they are found as they are, so nothing is missed in between.
async function createSlots(
  session: Session,
  parts: GroupParts,
  request: TopicRequest,
): Promise<DeclaredSlots> {
  const { settings, names, window } = parts;
  const { topic } = request;
  const shared = await findSharedStart(session, parts, topic);
  const start = shared ?? (await findStart(session, parts, request));
  const terms =
    shared === undefined ? await findLastTerms(session, parts, topic) : new Map<number, LastTerm>();
  const createSlot = async (partition: number): Promise<[string, Slot]> => {
    const last = terms.get(partition);
    if (last !== undefined) return [slotKey(topic, partition), { owner: null, base: last.epoch, ...last }];
    const info = await createConsumer(session, settings, {
      stream: streamNames(settings.prefix).messages,
      name: names.partitionConsumer(topic, partition, 1),
      filter: messageSubject(settings.prefix, topic, partition),
      start,
      window,
    });
    return [
      slotKey(topic, partition),
      { owner: null, epoch: 1, base: 1, at: firstSequence(info), fresh: true },
    ];
  };
  const all = Array.from({ length: settings.partitions }, (_, partition) => createSlot(partition));
  return { topic, entries: await Promise.all(all), wasShared: shared !== undefined };
}

/**
 * The last term of each partition that was read before its record was lost, with the stream it was in. The next term
 * resumes behind what that one acknowledged.
 */
async function findLastTerms(
  { jsm }: Session,
  { settings, names }: GroupParts,
  topic: string,
): Promise<ReadonlyMap<number, LastTerm>> {
  const own = readConsumerName(names.partitionConsumer(topic, 0, 1))?.group;
  const terms = new Map<number, LastTerm>();
  for await (const { name, delivered, config } of jsm.consumers.list(streamNames(settings.prefix).messages)) {
    const term = readConsumerName(name);
    if (term?.group !== own || term === undefined || term.partition === "all") continue;
    const partition = Number(term.partition);
    if (term.epoch === 1 && delivered.consumer_seq === 0) continue; // made a moment ago, and read by no one
    if (term.epoch < (terms.get(partition)?.epoch ?? 0)) continue;
    terms.set(partition, { epoch: term.epoch, at: config.opt_start_seq ?? 1 });
  }
  return terms;
}

/** The one consumer of a topic for a group that gave up order. */
export async function declareShared(
  session: Session,
  parts: GroupParts,
  request: TopicRequest,
): Promise<ConsumerInfo> {
  const { settings, names } = parts;
  const { topic } = request;
  const stream = streamNames(settings.prefix).messages;
  const name = names.sharedConsumer(topic);
  const found = await findConsumer(session.jsm, stream, name);
  const info =
    found ??
    (await createConsumer(session, settings, {
      stream,
      name,
      filter: messageSubject(settings.prefix, topic, "*"),
      start: (await findOrderedStart(session, parts, topic)) ?? (await findStart(session, parts, request)),
    }));
  await removeSlots(session, parts, topic);
  return info;
}

export function declareRetries(session: Session, parts: GroupParts, topic: string): Promise<ConsumerInfo> {
  const { settings, names } = parts;
  return createConsumer(session, settings, {
    stream: streamNames(settings.prefix).retries,
    name: names.retryConsumer(topic),
    filter: names.retry(topic),
    start: "beginning",
  });
}

async function findStart(session: Session, parts: GroupParts, { topic, from }: TopicRequest): Promise<Start> {
  if (await isStreamNew(session, parts)) return "beginning";
  const first = await claimTopic(session, parts, topic);
  if (typeof from === "object") return { since: from.time.toISOString() };
  return from === "beginning" || (from === "unclaimed" && first) ? "beginning" : "now";
}

/** True if the stream was deleted and created again while this member read it: all of it is new to the group. */
async function isStreamNew({ jsm }: Session, { settings, streamCreated }: GroupParts): Promise<boolean> {
  const before = streamCreated();
  if (before === undefined) return false;
  return (await jsm.streams.info(streamNames(settings.prefix).messages)).created !== before;
}

/** True for the group that came first to the topic, however often it asks. */
async function claimTopic(
  session: Session,
  { settings, names }: GroupParts,
  topic: string,
): Promise<boolean> {
  const { groups } = streamNames(settings.prefix);
  const record = new SharedRecord<{ first: string }>(groups, topicSubject(settings.prefix, topic), {
    first: "",
  });
  for (;;) {
    const { value, revision } = await record.read(session);
    if (revision !== 0) return value.first === names.record;
    if (await record.write(session, { first: names.record }, 0)) return true;
  }
}
