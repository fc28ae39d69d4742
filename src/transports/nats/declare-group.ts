import type { ConsumerInfo } from "@nats-io/jetstream";
import type { TopicRequest } from "../../transport/index.ts";
import { beginningOf, findConsumer, makeConsumer, type Start } from "./consumers.ts";
import { SharedRecord, type GroupRecord } from "./group-record.ts";
import { bornAgain, slotKey, type Slot } from "./group-state.ts";
import type { Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { placeOfShared, placeOfSlots, removeShared, removeSlots } from "./order-change.ts";
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
  await checkStream(session, parts);
  for (;;) {
    const { value, revision } = await parts.record.read(session);
    const missing = parts.topics.filter(({ topic }) => !(slotKey(topic, 0) in value.slots));
    if (missing.length === 0) return;
    const made = await Promise.all(missing.map((request) => makeSlots(session, parts, request)));
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
    if (await record.write(session, bornAgain(value, created), revision)) return value.born !== undefined;
  }
}

interface Made {
  readonly topic: string;
  readonly entries: readonly (readonly [string, Slot])[];
  readonly wasShared: boolean;
}

// Consumers first, the record after: made a second time they are found as they are, so nothing is missed in between.
async function makeSlots(session: Session, parts: GroupParts, request: TopicRequest): Promise<Made> {
  const { settings, names, window } = parts;
  const { topic } = request;
  const shared = await placeOfShared(session, parts, topic);
  const start = shared ?? (await startOf(session, parts, request));
  const make = async (partition: number): Promise<[string, Slot]> => {
    const info = await makeConsumer(session, settings, {
      stream: streamNames(settings.prefix).messages,
      name: names.partitionConsumer(topic, partition, 1),
      filter: messageSubject(settings.prefix, topic, partition),
      start,
      window,
    });
    return [
      slotKey(topic, partition),
      { owner: null, epoch: 1, base: 1, at: beginningOf(info), fresh: true },
    ];
  };
  const all = Array.from({ length: settings.partitions }, (_, partition) => make(partition));
  return { topic, entries: await Promise.all(all), wasShared: shared !== undefined };
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
    (await makeConsumer(session, settings, {
      stream,
      name,
      filter: messageSubject(settings.prefix, topic, "*"),
      start: (await placeOfSlots(session, parts, topic)) ?? (await startOf(session, parts, request)),
    }));
  await removeSlots(session, parts, topic);
  return info;
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
  if (typeof from === "object") return { since: from.time.toISOString() };
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
