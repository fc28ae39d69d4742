import { withDeadline } from "../../runtime/index.ts";
import { isCoordinatorGone, codeText } from "./kafka-codes.ts";
import type {
  Commit,
  CommittedAnswer,
  Heartbeat,
  HeartbeatAnswer,
  KafkaDriver,
  PartitionAnswer,
  TopicPartition,
} from "./driver.ts";

export type Offset = TopicPartition & { readonly offset: number };

export interface Membership {
  readonly member: string;
  readonly epoch: number;
}

/** The membership for requests about a group that this process has not joined. */
export const noMembership: Membership = Object.freeze({ member: "", epoch: -1 });

/** Sends requests to the broker that coordinates a group, and looks that broker up again when it has moved. */
export class Coordinator {
  readonly group: string;
  readonly #driver: KafkaDriver;
  readonly #channel: string;
  readonly #timeoutMs: number;
  #node: number | undefined;

  constructor(driver: KafkaDriver, group: string, channel: string, timeoutMs: number) {
    this.#driver = driver;
    this.group = group;
    this.#channel = channel;
    this.#timeoutMs = timeoutMs;
  }

  async heartbeat(beat: Omit<Heartbeat, "group">): Promise<HeartbeatAnswer> {
    const answer = await this.#request((node) =>
      this.#driver.heartbeat(this.#channel, node, { ...beat, group: this.group }),
    );
    this.#assertCoordinator(answer.code);
    return answer;
  }

  async commit(
    { member, epoch }: Membership,
    offsets: readonly Offset[],
  ): Promise<readonly PartitionAnswer[]> {
    const commit: Commit = { group: this.group, member, epoch, offsets };
    const answers = await this.#request((node) => this.#driver.commit(this.#channel, node, commit));
    for (const { code } of answers) this.#assertCoordinator(code);
    return answers;
  }

  async committed(membership: Membership, wanted: readonly TopicPartition[]): Promise<CommittedAnswer> {
    const { epoch } = membership;
    const member = membership.member === "" ? null : membership.member;
    const answer = await this.#request((node) =>
      this.#driver.committed(this.#channel, node, { group: this.group, member, epoch, wanted }),
    );
    this.#assertCoordinator(answer.code);
    return answer;
  }

  close(): void {
    this.#driver.drop(this.#channel);
  }

  async #request<T>(request: (node: number) => Promise<T>): Promise<T> {
    const requestOnce = async (): Promise<T> => {
      this.#node ??= await this.#driver.coordinator(this.group);
      return request(this.#node);
    };
    try {
      return await withDeadline(requestOnce(), this.#timeoutMs, () => {
        this.#driver.drop(this.#channel);
        throw new Error(`the coordinator of group ${this.group} did not answer within ${this.#timeoutMs} ms`);
      });
    } catch (error) {
      this.#node = undefined;
      throw error;
    }
  }

  #assertCoordinator(code: number): void {
    if (!isCoordinatorGone(code)) return;
    this.#node = undefined;
    throw new Error(`the broker does not coordinate group ${this.group}: ${codeText(code)}`);
  }
}
