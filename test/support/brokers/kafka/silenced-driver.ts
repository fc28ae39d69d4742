import { NoAnswerError, type KafkaDriver } from "../../../../src/transports/kafka/driver.ts";

/** A driver whose process can die: from then on nothing leaves it and nothing comes in. Or whose connections break. */
export class SilencedDriver implements KafkaDriver {
  readonly #inner: KafkaDriver;
  readonly #lanes = new Set(["control", "produce"]);
  #silent = false;

  constructor(inner: KafkaDriver) {
    this.#inner = inner;
  }

  silence(): void {
    this.#silent = true;
  }

  /** Ends every connection; new ones may be made at once. */
  cut(): void {
    for (const channel of this.#lanes) this.#inner.drop(channel);
  }

  describe: KafkaDriver["describe"] = (...args) => this.#unlessSilenced(() => this.#inner.describe(...args));
  version: KafkaDriver["version"] = (...args) => this.#unlessSilenced(() => this.#inner.version(...args));
  createTopics: KafkaDriver["createTopics"] = (...args) =>
    this.#unlessSilenced(() => this.#inner.createTopics(...args));
  topicSettings: KafkaDriver["topicSettings"] = (...args) =>
    this.#unlessSilenced(() => this.#inner.topicSettings(...args));
  newIdentity: KafkaDriver["newIdentity"] = () => this.#unlessSilenced(() => this.#inner.newIdentity());
  produce: KafkaDriver["produce"] = (...args) => this.#unlessSilenced(() => this.#inner.produce(...args));
  fetch: KafkaDriver["fetch"] = (...args) => this.#onLane(args[0], () => this.#inner.fetch(...args));
  offsets: KafkaDriver["offsets"] = (...args) => this.#unlessSilenced(() => this.#inner.offsets(...args));
  coordinator: KafkaDriver["coordinator"] = (...args) =>
    this.#unlessSilenced(() => this.#inner.coordinator(...args));
  heartbeat: KafkaDriver["heartbeat"] = (...args) =>
    this.#onLane(args[0], () => this.#inner.heartbeat(...args));
  commit: KafkaDriver["commit"] = (...args) => this.#unlessSilenced(() => this.#inner.commit(...args));
  committed: KafkaDriver["committed"] = (...args) =>
    this.#unlessSilenced(() => this.#inner.committed(...args));
  groups: KafkaDriver["groups"] = (...args) => this.#unlessSilenced(() => this.#inner.groups(...args));
  drop: KafkaDriver["drop"] = (channel) => this.#inner.drop(channel);
  close: KafkaDriver["close"] = () => this.#inner.close();

  #onLane<T>(channel: string, request: () => Promise<T>): Promise<T> {
    this.#lanes.add(channel);
    return this.#unlessSilenced(request);
  }

  async #unlessSilenced<T>(request: () => Promise<T>): Promise<T> {
    if (this.#silent) throw new NoAnswerError("the process is dead", false, undefined);
    const answer = await request();
    if (this.#silent) throw new NoAnswerError("the process is dead", true, undefined);
    return answer;
  }
}
