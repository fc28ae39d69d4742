import type { Authenticator } from "@nats-io/transport-node";
import { SagaboxError } from "../../errors/index.ts";
import { rejectUnknownKeys } from "../../options/index.ts";
import { natsClient } from "./client.ts";

/** One of: user and password, a token, the seed of an nkey, or the text of a .creds file. */
export interface NatsCredentials {
  readonly user?: string;
  readonly password?: string;
  readonly token?: string;
  readonly nkeySeed?: string;
  readonly creds?: string;
}

export type CredentialSource = NatsCredentials | (() => NatsCredentials | Promise<NatsCredentials>);

export function checkCredentials(given: CredentialSource | undefined): CredentialSource | undefined {
  if (given === undefined || typeof given === "function") return given;
  checkCredential(given);
  return Object.freeze({ ...given });
}

/** Asked for each connection, so that rotated credentials are found. Only texts leave this function. */
export async function createAuthenticator(
  source: CredentialSource | undefined,
): Promise<Authenticator | undefined> {
  if (source === undefined) return undefined;
  const given = typeof source === "function" ? await resolveCredentials(source) : source;
  checkCredential(given);
  const { node } = await natsClient.load();
  if (given.user !== undefined) return node.usernamePasswordAuthenticator(given.user, given.password);
  if (given.token !== undefined) return node.tokenAuthenticator(given.token);
  if (given.nkeySeed !== undefined) return node.nkeyAuthenticator(Buffer.from(given.nkeySeed.trim()));
  return node.credsAuthenticator(Buffer.from(given.creds ?? ""));
}

// Its own words are kept out of ours: they may hold what it was asked for.
async function resolveCredentials(
  source: () => NatsCredentials | Promise<NatsCredentials>,
): Promise<NatsCredentials> {
  try {
    return await source();
  } catch (cause) {
    throw new SagaboxError("TRANSPORT_UNREACHABLE", "The function for NATS credentials failed.", { cause });
  }
}

const kinds = ["user", "token", "nkeySeed", "creds"] as const;

function checkCredential(given: NatsCredentials): void {
  rejectUnknownKeys("nats.credentials", given, [...kinds, "password"]);
  const values: readonly unknown[] = Object.values(given);
  if (values.some((value) => value !== undefined && typeof value !== "string")) {
    throw invalid("must be texts");
  }
  if (kinds.filter((kind) => given[kind] !== undefined).length !== 1) {
    throw invalid("must be one of user and password, token, nkeySeed or creds");
  }
  if ((given.user === undefined) !== (given.password === undefined)) {
    throw invalid("need user and password together");
  }
}

function invalid(what: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", `nats.credentials ${what}.`);
}
