import type { ConsumerInfo } from "@nats-io/jetstream";
import { systemClock, withDeadline } from "../../runtime/index.ts";
import type { Lag, PlannedGroup } from "../../transport/index.ts";
import { findConsumer } from "./consumers.ts";
import type { Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { groupNames, readConsumerName, streamNames } from "./topology.ts";

/** What a consumer at the server tells about its position. */
export type Position = Pick<ConsumerInfo, "name" | "num_pending" | "num_ack_pending"> & {
  readonly ack_floor: Pick<ConsumerInfo["ack_floor"], "stream_seq">;
  readonly config: Pick<ConsumerInfo["config"], "filter_subject">;
};

/**
 * Returns the last consumer of each partition, or the shared consumer of a group without order; undefined unless all of
 * them exist. If a partition has consumers of two terms, the former is about to be deleted. Pure.
 */
export function findPositions(
  found: readonly Position[],
  ordered: boolean,
  partitions: number,
): readonly Position[] | undefined {
  const last = new Map<string, { readonly epoch: number; readonly position: Position }>();
  for (const position of found) {
    const name = readConsumerName(position.name);
    if (name === undefined || (name.partition === "all") === ordered) continue;
    if ((last.get(name.partition)?.epoch ?? -1) > name.epoch) continue;
    last.set(name.partition, { epoch: name.epoch, position });
  }
  if (last.size < (ordered ? partitions : 1)) return undefined;
  return Array.from(last.values(), ({ position }) => position);
}

const countWaiting = ({ num_pending: pending, num_ack_pending: unsettled }: Position): number =>
  pending + unsettled;

/** Measures how far groups are behind. A topic that a group has not subscribed to yet is left out. */
export async function readLags(
  session: Session,
  settings: NatsSettings,
  groups: readonly PlannedGroup[],
): Promise<readonly Lag[]> {
  const { prefix, partitions } = settings;
  const streams = streamNames(prefix);
  const positions = new Map<string, Position[]>();
  for await (const info of session.jsm.consumers.list(streams.messages)) {
    const id = readConsumerName(info.name)?.group;
    if (id === undefined) continue;
    const known = positions.get(id);
    if (known === undefined) positions.set(id, [info]);
    else known.push(info);
  }
  const clock = new MessageClock(session, streams.messages);
  const lags: Lag[] = [];
  for (const { service, group, ordered, topics } of groups) {
    const names = groupNames(prefix, service, group);
    for (const { topic } of topics) {
      const id = readConsumerName(names.sharedConsumer(topic))?.group ?? "";
      const own = findPositions(positions.get(id) ?? [], ordered, partitions);
      if (own === undefined) continue;
      const retries = await findConsumer(session.jsm, streams.retries, names.retryConsumer(topic));
      const retried = retries === undefined ? 0 : countWaiting(retries);
      const behind = own.filter((position) => countWaiting(position) > 0);
      const waiting = behind.reduce((sum, position) => sum + countWaiting(position), retried);
      // When a message that waits for a retry is due is not known without reading it.
      const isUnknown = behind.length === 0 && retried > 0;
      lags.push({
        group,
        topic,
        waiting,
        oldestAgeSeconds: isUnknown ? "unknown" : await clock.findOldestAge(behind),
      });
    }
  }
  return lags;
}

const MAX_LOOKUP_MS = 1_000;
/** If more partitions than this are behind, the age of their oldest message is not looked up. */
const MAX_LOOKUPS = 100;

/** Looks up when messages were stored, until a lookup fails: the server does not answer one that it does not permit. */
class MessageClock {
  readonly #session: Session;
  readonly #stream: string;
  #isUsable = true;

  constructor(session: Session, stream: string) {
    this.#session = session;
    this.#stream = stream;
  }

  /** Returns the age of the oldest message that one of these consumers has not settled, in seconds. */
  async findOldestAge(behind: readonly Position[]): Promise<Lag["oldestAgeSeconds"]> {
    if (behind.length > MAX_LOOKUPS) return "unknown";
    let oldestMs = Infinity;
    for (const position of behind) {
      const storedMs = this.#isUsable ? await this.#findStoredMs(position) : undefined;
      if (storedMs === undefined) return "unknown";
      oldestMs = Math.min(oldestMs, storedMs);
    }
    if (behind.length === 0) return 0;
    return Math.max(0, Math.round((systemClock.wallMs() - oldestMs) / 100) / 10);
  }

  // All messages up to the acknowledgement floor are settled.
  async #findStoredMs({ ack_floor: floor, config }: Position): Promise<number | undefined> {
    const next = { seq: floor.stream_seq + 1, next_by_subj: config.filter_subject ?? "" };
    const lookup = this.#session.jsm.streams.getMessage(this.#stream, next);
    try {
      const found = await withDeadline(lookup, MAX_LOOKUP_MS, () => {
        throw new Error(`no answer within ${MAX_LOOKUP_MS} ms`);
      });
      return found?.time.getTime();
    } catch {
      this.#isUsable = false;
      return undefined;
    }
  }
}
