import type { ConsumerInfo } from "@nats-io/jetstream";
import { findConsumer, type Start } from "./consumers.ts";
import type { GroupParts } from "./declare-group.ts";
import { readSlotKey, type GroupState, type Slot } from "./group-state.ts";
import type { Session } from "./link.ts";
import { streamNames } from "./topology.ts";

// A group that gives up order, or takes it up, goes on where it was: each way of reading begins at the place of the
// other and then removes it. What was unsettled at that moment may come twice, which the inbox knows.

/** Where the partitions of a topic stand, or undefined if the group has not read it in order. */
export async function findOrderedStart(
  session: Session,
  { settings, names, record }: GroupParts,
  topic: string,
): Promise<Start | undefined> {
  const { messages } = streamNames(settings.prefix);
  const slots = findSlots((await record.read(session)).value, topic);
  if (slots.length === 0) return undefined;
  const end = await findStreamEnd(session, messages);
  const places = slots.map(async ([key, { epoch, base, at }]) => {
    const name = (term: number): string => names.partitionConsumer(topic, readSlotKey(key).partition, term);
    const info =
      (await findConsumer(session.jsm, messages, name(epoch))) ??
      (await findConsumer(session.jsm, messages, name(base)));
    if (info === undefined) return at;
    return isDone(info) ? end : Math.max(at, info.ack_floor.stream_seq + 1);
  });
  return { at: Math.min(...(await Promise.all(places))) };
}

/** Where the one consumer of a group without order stands, if there is one. */
export async function findSharedStart(
  session: Session,
  { settings, names }: GroupParts,
  topic: string,
): Promise<Start | undefined> {
  const { messages } = streamNames(settings.prefix);
  const end = await findStreamEnd(session, messages);
  const info = await findConsumer(session.jsm, messages, names.sharedConsumer(topic));
  if (info === undefined) return undefined;
  if (isDone(info)) return { at: end };
  if (info.ack_floor.stream_seq > 0) return { at: info.ack_floor.stream_seq + 1 };
  const { opt_start_seq: at, opt_start_time: since, deliver_policy: policy } = info.config;
  if (at !== undefined) return { at };
  if (since !== undefined) return { since };
  return policy === "new" ? { since: info.created } : "beginning";
}

export async function removeSlots(session: Session, parts: GroupParts, topic: string): Promise<void> {
  const { settings, names, record } = parts;
  const { messages } = streamNames(settings.prefix);
  for (;;) {
    const { value, revision } = await record.read(session);
    const gone = findSlots(value, topic);
    if (gone.length === 0) return;
    const rest = Object.entries(value.slots).filter(([key]) => readSlotKey(key).topic !== topic);
    if (!(await record.write(session, { ...value, slots: Object.fromEntries(rest) }, revision))) continue;
    for (const [key, { epoch, base }] of gone) {
      for (const term of new Set([epoch, base])) {
        const name = names.partitionConsumer(topic, readSlotKey(key).partition, term);
        session.jsm.consumers.delete(messages, name).catch(() => undefined);
      }
    }
    session.nc.publish(names.hint);
    return;
  }
}

export async function removeShared(session: Session, parts: GroupParts, topic: string): Promise<void> {
  const { messages } = streamNames(parts.settings.prefix);
  await session.jsm.consumers.delete(messages, parts.names.sharedConsumer(topic));
}

function findSlots({ slots }: GroupState, topic: string): [string, Slot][] {
  return Object.entries(slots).filter(([key]) => readSlotKey(key).topic === topic);
}

// Asked before the consumers are: what comes meanwhile lies behind it, and is not missed.
async function findStreamEnd({ jsm }: Session, stream: string): Promise<number> {
  return (await jsm.streams.info(stream)).state.last_seq + 1;
}

function isDone(info: ConsumerInfo): boolean {
  return info.num_pending === 0 && info.num_ack_pending === 0;
}
