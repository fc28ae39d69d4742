import { SagaboxError } from "../errors/index.ts";

export interface ClientPackage<Client> {
  /** The broker's name, for error messages. */
  readonly broker: string;
  /** The packages to install, each with the supported version range: `amqplib@2`. */
  readonly install: readonly string[];
  /** Imports the client. Uses a literal `import("…")`, so that bundlers find it. */
  readonly load: () => Promise<Client>;
}

/**
 * Loads a broker's client, which is an optional package. It is imported when a transport is opened and not with this
 * module, so that a missing package fails with the command that installs it (`TRANSPORT_CLIENT_MISSING`).
 */
export class ClientLoader<Client> {
  readonly #package: ClientPackage<Client>;
  #client: Client | undefined;

  constructor(clientPackage: ClientPackage<Client>) {
    this.#package = clientPackage;
  }

  /** The loaded client. Throws before `load()` has succeeded. */
  get client(): Client {
    if (this.#client === undefined)
      throw new Error(`the client for ${this.#package.broker} was not loaded yet`);
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

// A module that is missing inside the client is a different failure and is rethrown unchanged.
function isMissing(error: unknown, packageName: string): boolean {
  if (!(error instanceof Error) || !("code" in error)) return false;
  if (error.code !== "ERR_MODULE_NOT_FOUND" && error.code !== "MODULE_NOT_FOUND") return false;
  return error.message.includes(`'${packageName.slice(0, packageName.lastIndexOf("@"))}'`);
}

function packageMissing(broker: string, install: readonly string[], cause: unknown): SagaboxError {
  return new SagaboxError(
    "TRANSPORT_CLIENT_MISSING",
    `The client for ${broker} is not installed. Run: npm install ${install.join(" ")}`,
    { cause },
  );
}
