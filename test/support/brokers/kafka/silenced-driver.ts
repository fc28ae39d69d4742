import { NoAnswer, type KafkaDriver } from "../../../../src/transports/kafka/driver.ts";

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
    for (const lane of this.#lanes) this.#inner.drop(lane);
  }

  describe: KafkaDriver["describe"] = (...args) => this.#unless(() => this.#inner.describe(...args));
  version: KafkaDriver["version"] = (...args) => this.#unless(() => this.#inner.version(...args));
  createTopics: KafkaDriver["createTopics"] = (...args) =>
    this.#unless(() => this.#inner.createTopics(...args));
  topicSettings: KafkaDriver["topicSettings"] = (...args) =>
    this.#unless(() => this.#inner.topicSettings(...args));
  newIdentity: KafkaDriver["newIdentity"] = () => this.#unless(() => this.#inner.newIdentity());
  produce: KafkaDriver["produce"] = (...args) => this.#unless(() => this.#inner.produce(...args));
  fetch: KafkaDriver["fetch"] = (...args) => this.#on(args[0], () => this.#inner.fetch(...args));
  offsets: KafkaDriver["offsets"] = (...args) => this.#unless(() => this.#inner.offsets(...args));
  coordinator: KafkaDriver["coordinator"] = (...args) => this.#unless(() => this.#inner.coordinator(...args));
  heartbeat: KafkaDriver["heartbeat"] = (...args) => this.#on(args[0], () => this.#inner.heartbeat(...args));
  commit: KafkaDriver["commit"] = (...args) => this.#unless(() => this.#inner.commit(...args));
  committed: KafkaDriver["committed"] = (...args) => this.#unless(() => this.#inner.committed(...args));
  groups: KafkaDriver["groups"] = (...args) => this.#unless(() => this.#inner.groups(...args));
  drop: KafkaDriver["drop"] = (lane) => this.#inner.drop(lane);
  close: KafkaDriver["close"] = () => this.#inner.close();

  #on<T>(lane: string, request: () => Promise<T>): Promise<T> {
    this.#lanes.add(lane);
    return this.#unless(request);
  }

  async #unless<T>(request: () => Promise<T>): Promise<T> {
    if (this.#silent) throw new NoAnswer("the process is dead", false, undefined);
    const answer = await request();
    if (this.#silent) throw new NoAnswer("the process is dead", true, undefined);
    return answer;
  }
}
