import type { ConsumerInfo } from "@nats-io/jetstream";
import type { TopicRequest } from "../../transport/index.ts";
import { beginningOf, findConsumer, makeConsumer, type Start } from "./consumers.ts";
import { SharedRecord, type GroupRecord } from "./group-record.ts";
import { slotKey, type GroupState, type Slot } from "./group-state.ts";
import type { Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { messageSubject, streamNames, topicSubject, type GroupNames } from "./topology.ts";

export interface GroupParts {
  readonly settings: NatsSettings;
  readonly names: GroupNames;
  readonly record: GroupRecord;
  readonly topics: readonly TopicRequest[];
  readonly window: number;
}

/** Makes sure that every partition of these topics has its place in the record, beginning where it was asked to. */
export async function declareSlots(session: Session, parts: GroupParts): Promise<void> {
  for (;;) {
    const { value, revision } = await parts.record.read(session);
    const missing = parts.topics.filter(({ topic }) => !(slotKey(topic, 0) in value.slots));
    if (missing.length === 0) return;
    const made = await Promise.all(missing.map((request) => makeSlots(session, parts, request)));
    const slots = { ...value.slots, ...Object.fromEntries(made.flat()) };
    if (await parts.record.write(session, { ...value, slots }, revision)) return;
  }
}

// Consumers first, the record after: made a second time they are found as they are, so nothing is missed in between.
async function makeSlots(
  session: Session,
  parts: GroupParts,
  request: TopicRequest,
): Promise<[string, Slot][]> {
  const { settings, names, window } = parts;
  const { topic } = request;
  const { messages } = streamNames(settings.prefix);
  const start = await startOf(session, parts, request);
  const shared = await findConsumer(session.jsm, messages, names.sharedConsumer(topic));
  const make = async (partition: number): Promise<[string, Slot]> => {
    const info = await makeConsumer(session, settings, {
      stream: messages,
      name: names.partitionConsumer(topic, partition, 1),
      filter: messageSubject(settings.prefix, topic, partition),
      start: shared === undefined || floorOf(shared) === 1 ? start : { at: floorOf(shared) },
      window,
    });
    return [
      slotKey(topic, partition),
      { owner: null, epoch: 1, base: 1, at: beginningOf(info), fresh: true },
    ];
  };
  return Promise.all(Array.from({ length: settings.partitions }, (_, partition) => make(partition)));
}

/** The one consumer of a topic for a group that gave up order. */
export async function declareShared(
  session: Session,
  parts: GroupParts,
  request: TopicRequest,
): Promise<ConsumerInfo> {
  const { settings, names, record } = parts;
  const { topic } = request;
  const { messages } = streamNames(settings.prefix);
  const asked = { stream: messages, name: names.sharedConsumer(topic) };
  const found = await findConsumer(session.jsm, asked.stream, asked.name);
  if (found !== undefined) return found;
  const start = await startOf(session, parts, request);
  const once = firstOf((await record.read(session)).value, topic, settings.partitions);
  return makeConsumer(session, settings, {
    ...asked,
    filter: messageSubject(settings.prefix, topic, "*"),
    start: once === undefined ? start : { at: once },
  });
}

export function declareRetries(session: Session, parts: GroupParts, topic: string): Promise<ConsumerInfo> {
  const { settings, names } = parts;
  return makeConsumer(session, settings, {
    stream: streamNames(settings.prefix).retries,
    name: names.retryConsumer(topic),
    filter: names.retry(topic),
    start: "beginning",
  });
}

async function startOf(session: Session, parts: GroupParts, { topic, from }: TopicRequest): Promise<Start> {
  const first = await claim(session, parts, topic);
  return from === "beginning" || (from === "unclaimed" && first) ? "beginning" : "now";
}

/** True for the group that came first to the topic, however often it asks. */
async function claim(session: Session, { settings, names }: GroupParts, topic: string): Promise<boolean> {
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

// A group that changes its mind about order goes on where it was; what it sees twice its inbox knows.
function firstOf({ slots }: GroupState, topic: string, partitions: number): number | undefined {
  const at = Array.from({ length: partitions }, (_, partition) => slots[slotKey(topic, partition)]?.at);
  const known = at.filter((sequence) => sequence !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

function floorOf(info: ConsumerInfo): number {
  return info.ack_floor.stream_seq + 1;
}
