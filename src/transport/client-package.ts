import { SagaboxError } from "../errors/index.ts";

export interface ClientPackage<Client> {
  /** For people: the broker's name. */
  readonly broker: string;
  /** What to install, each with the versions that will do: `amqplib@2`. */
  readonly install: readonly string[];
  /** Imports it. A literal `import("…")`, so that bundlers find it. */
  readonly load: () => Promise<Client>;
}

/**
 * A broker's client is an optional package, so it is imported when a transport is opened and not when its room is
 * entered: whoever has not installed it then hears what to install instead of a module that cannot be found.
 */
export class ClientLoader<Client> {
  readonly #package: ClientPackage<Client>;
  #client: Client | undefined;

  constructor(wanted: ClientPackage<Client>) {
    this.#package = wanted;
  }

  /** The client, once it was loaded. */
  get client(): Client {
    if (this.#client === undefined)
      throw new Error(`the client of ${this.#package.broker} was not loaded yet`);
    return this.#client;
  }

  async load(): Promise<Client> {
    if (this.#client !== undefined) return this.#client;
    const { broker, install, load } = this.#package;
    try {
      this.#client = await load();
      return this.#client;
    } catch (error) {
      throw install.some((name) => isMissing(error, name)) ? packageMissing(broker, install, error) : error;
    }
  }
}

// Something missing inside the client itself is another matter, and is told as it is.
function isMissing(error: unknown, wanted: string): boolean {
  if (!(error instanceof Error) || !("code" in error)) return false;
  if (error.code !== "ERR_MODULE_NOT_FOUND" && error.code !== "MODULE_NOT_FOUND") return false;
  return error.message.includes(`'${wanted.slice(0, wanted.lastIndexOf("@"))}'`);
}

function packageMissing(broker: string, install: readonly string[], cause: unknown): SagaboxError {
  return new SagaboxError(
    "TRANSPORT_CLIENT_MISSING",
    `The client for ${broker} is not installed. Run: npm install ${install.join(" ")}`,
    { cause },
  );
}
