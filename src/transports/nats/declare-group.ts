import type { ConsumerInfo } from "@nats-io/jetstream";
import type { TopicRequest } from "../../transport/index.ts";
import { createConsumer, findConsumer, firstSequence, type Start } from "./consumers.ts";
import { type GroupRecord, SharedRecord } from "./group-record.ts";
import { type GroupState, readSlotKey, resetForNewStream, type Slot, slotKey } from "./group-state.ts";
import type { Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { type GroupNames, messageSubject, readConsumerName, streamNames, topicSubject } from "./topology.ts";

export interface GroupParts {
  readonly settings: NatsSettings;
  readonly names: GroupNames;
  readonly record: GroupRecord;
  readonly topics: readonly TopicRequest[];
  readonly window: number;
  /** Returns the creation time of the stream that this member reads; undefined before the first read. */
  readonly streamCreated: () => string | undefined;
}

/** Adds the missing slots of the subscribed topics to the group record, at the start that the subscription requested. */
export async function declareSlots(session: Session, parts: GroupParts): Promise<void> {
  await checkStream(session, parts);
  for (;;) {
    const { value, revision } = await parts.record.read(session);
    const missing = parts.topics.filter(({ topic }) => !(slotKey(topic, 0) in value.slots));
    if (missing.length === 0) return;
    const declared = await Promise.all(missing.map((request) => createSlots(session, parts, request)));
    const slots = { ...value.slots, ...Object.fromEntries(declared.flatMap(({ entries }) => entries)) };
    if (!(await parts.record.write(session, { ...value, slots }, revision))) continue;
    const switched = declared.filter(({ wasShared }) => wasShared);
    await Promise.all(switched.map(({ topic }) => removeShared(session, parts, topic)));
    return;
  }
}

/**
 * Detects a stream that was deleted and created again: its sequences restart at 1 and all its messages are new to the
 * group. Returns true after resetting the group record to the new stream.
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

/** Epoch and start sequence of the last term of a partition. */
type LastTerm = Pick<Slot, "epoch" | "at">;

interface DeclaredSlots {
  readonly topic: string;
  readonly entries: readonly (readonly [string, Slot])[];
  readonly wasShared: boolean;
}

// Create the consumers before writing the record. Creating them again returns the existing ones, so a crash in between
// loses no messages.
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
 * Finds the last term of each partition when the group record was lost but the consumers still exist. The next
 * term resumes after the messages that were acknowledged in the last one.
 */
async function findLastTerms(
  { jsm }: Session,
  { settings, names }: GroupParts,
  topic: string,
): Promise<ReadonlyMap<number, LastTerm>> {
  const ownGroup = readConsumerName(names.partitionConsumer(topic, 0, 1))?.group;
  const terms = new Map<number, LastTerm>();
  for await (const { name, delivered, config } of jsm.consumers.list(streamNames(settings.prefix).messages)) {
    const term = readConsumerName(name);
    if (term?.group !== ownGroup || term === undefined || term.partition === "all") continue;
    const partition = Number(term.partition);
    if (term.epoch === 1 && delivered.consumer_seq === 0) continue; // created a moment ago and never read
    if (term.epoch < (terms.get(partition)?.epoch ?? 0)) continue;
    terms.set(partition, { epoch: term.epoch, at: config.opt_start_seq ?? 1 });
  }
  return terms;
}

/** Creates the single consumer of a topic for a group without ordering. */
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

/** Creates the consumer of a topic's retries for a group. */
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
  if (await isStreamRecreated(session, parts)) return "beginning";
  const isFirstGroup = await claimTopic(session, parts, topic);
  if (typeof from === "object") return { since: from.time.toISOString() };
  return from === "beginning" || (from === "unclaimed" && isFirstGroup) ? "beginning" : "now";
}

/** Returns true if the stream was deleted and created again while this member read it. */
async function isStreamRecreated(
  { jsm }: Session,
  { settings, streamCreated }: GroupParts,
): Promise<boolean> {
  const before = streamCreated();
  if (before === undefined) return false;
  return (await jsm.streams.info(streamNames(settings.prefix).messages)).created !== before;
}

/** Records this group as the topic's first, unless another group is. Returns true if this group is the first. */
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

// When a group switches between ordered and unordered reading, the new consumers start at the position of the old ones,
// which are then deleted. Messages that were unsettled at that moment may be delivered twice; the inbox skips them.

/** Finds the lowest position of a topic's partitions. Returns undefined if the group has no slots for the topic. */
async function findOrderedStart(
  session: Session,
  { settings, names, record }: GroupParts,
  topic: string,
): Promise<Start | undefined> {
  const { messages } = streamNames(settings.prefix);
  const slots = findSlots((await record.read(session)).value, topic);
  if (slots.length === 0) return undefined;
  const end = await findStreamEnd(session, messages);
  const positions = slots.map(async ([key, { epoch, base, at }]) => {
    const consumerName = (term: number): string =>
      names.partitionConsumer(topic, readSlotKey(key).partition, term);
    const info =
      (await findConsumer(session.jsm, messages, consumerName(epoch))) ??
      (await findConsumer(session.jsm, messages, consumerName(base)));
    if (info === undefined) return at;
    return isCaughtUp(info) ? end : Math.max(at, info.ack_floor.stream_seq + 1);
  });
  return { at: Math.min(...(await Promise.all(positions))) };
}

/** Finds the position of the group's shared consumer, if there is one. */
async function findSharedStart(
  session: Session,
  { settings, names }: GroupParts,
  topic: string,
): Promise<Start | undefined> {
  const { messages } = streamNames(settings.prefix);
  const end = await findStreamEnd(session, messages);
  const info = await findConsumer(session.jsm, messages, names.sharedConsumer(topic));
  if (info === undefined) return undefined;
  if (isCaughtUp(info)) return { at: end };
  if (info.ack_floor.stream_seq > 0) return { at: info.ack_floor.stream_seq + 1 };
  const { opt_start_seq: at, opt_start_time: since, deliver_policy: policy } = info.config;
  if (at !== undefined) return { at };
  if (since !== undefined) return { since };
  return policy === "new" ? { since: info.created } : "beginning";
}

async function removeSlots(session: Session, parts: GroupParts, topic: string): Promise<void> {
  const { settings, names, record } = parts;
  const { messages } = streamNames(settings.prefix);
  for (;;) {
    const { value, revision } = await record.read(session);
    const removed = findSlots(value, topic);
    if (removed.length === 0) return;
    const rest = Object.entries(value.slots).filter(([key]) => readSlotKey(key).topic !== topic);
    if (!(await record.write(session, { ...value, slots: Object.fromEntries(rest) }, revision))) continue;
    for (const [key, { epoch, base }] of removed) {
      for (const term of new Set([epoch, base])) {
        const name = names.partitionConsumer(topic, readSlotKey(key).partition, term);
        session.jsm.consumers.delete(messages, name).catch(() => undefined);
      }
    }
    session.nc.publish(names.hint);
    return;
  }
}

async function removeShared(session: Session, parts: GroupParts, topic: string): Promise<void> {
  const { messages } = streamNames(parts.settings.prefix);
  await session.jsm.consumers.delete(messages, parts.names.sharedConsumer(topic));
}

function findSlots({ slots }: GroupState, topic: string): [string, Slot][] {
  return Object.entries(slots).filter(([key]) => readSlotKey(key).topic === topic);
}

// Read the end of the stream before creating consumers: messages that arrive in between have a higher sequence and are
// not missed.
async function findStreamEnd({ jsm }: Session, stream: string): Promise<number> {
  return (await jsm.streams.info(stream)).state.last_seq + 1;
}

function isCaughtUp(info: ConsumerInfo): boolean {
  return info.num_pending === 0 && info.num_ack_pending === 0;
}
