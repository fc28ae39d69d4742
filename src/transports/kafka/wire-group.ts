import type {
  consumerGroupHeartbeatV1,
  offsetCommitV9,
  offsetFetchV9,
  Connection,
} from "@platformatic/kafka";
import { platformatic } from "./client.ts";
import type { Commit, CommittedAnswer, CommittedRequest, Heartbeat, HeartbeatAnswer } from "./driver.ts";
import { groupByTopic, flattenAnswers } from "./wire-forms.ts";

type HeartbeatResponse = ReturnType<typeof consumerGroupHeartbeatV1.parseResponse>;
type CommitResponse = ReturnType<typeof offsetCommitV9.parseResponse>;
type CommittedResponse = ReturnType<typeof offsetFetchV9.parseResponse>;

/** Always the whole of what we hold, so that the answer is always the whole of what should be ours. */
export function sendHeartbeat(connection: Connection, beat: Heartbeat): Promise<HeartbeatResponse> {
  const { group, member, epoch, handOverMs, topics } = beat;
  const owned = beat.owned.map(({ topicId, partitions }) => ({ topicId, partitions: [...partitions] }));
  return platformatic.client.consumerGroupHeartbeatV1.api.async(
    connection,
    ...([group, member, epoch, null, null, handOverMs] as const),
    [...topics],
    null,
    null,
    owned,
  );
}

export function toHeartbeatAnswer(answer: HeartbeatResponse): HeartbeatAnswer {
  return {
    code: answer.errorCode,
    detail: answer.errorMessage ?? "",
    epoch: answer.memberEpoch,
    intervalMs: answer.heartbeatIntervalMs,
    assignment: answer.assignment?.topicPartitions ?? null,
  };
}

export function sendCommit(connection: Connection, commit: Commit): Promise<CommitResponse> {
  const { group, member, epoch, offsets } = commit;
  const topics = groupByTopic(offsets, ({ topic }) => topic).map(([name, partitions]) => ({
    name,
    partitions: partitions.map(({ partition, offset }) => ({
      partitionIndex: partition,
      committedOffset: BigInt(offset),
      committedLeaderEpoch: -1,
      committedMetadata: "",
    })),
  }));
  return platformatic.client.offsetCommitV9.api.async(connection, group, epoch, member, null, topics);
}

export function sendFetchCommitted(
  connection: Connection,
  request: CommittedRequest,
): Promise<CommittedResponse> {
  const { group, member, epoch, wanted } = request;
  const topics = groupByTopic(wanted, ({ topic }) => topic).map(([name, partitions]) => ({
    name,
    partitionIndexes: partitions.map(({ partition }) => partition),
  }));
  const asked = [{ groupId: group, memberId: member, memberEpoch: epoch, topics }];
  return platformatic.client.offsetFetchV9.api.async(connection, asked, false);
}

export function toCommittedAnswer({ groups: [found] }: CommittedResponse): CommittedAnswer {
  const offsets = flattenAnswers(found?.topics ?? [], ({ committedOffset }) => ({
    offset: Number(committedOffset),
  }));
  const failed = offsets.find(({ code }) => code !== 0)?.code ?? 0;
  const code = found?.errorCode ?? 0;
  return { code: code === 0 ? failed : code, offsets: offsets.filter(({ offset }) => offset >= 0) };
}
