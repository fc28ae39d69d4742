import type { Authenticator } from "@nats-io/transport-node";
import { SagaboxError } from "../../errors/index.ts";
import { rejectUnknownKeys } from "../../options/index.ts";
import { natsClient } from "./client.ts";

/** Exactly one kind: user and password, a token, an nkey seed, or the content of a .creds file. */
export interface NatsCredentials {
  readonly user?: string;
  readonly password?: string;
  readonly token?: string;
  readonly nkeySeed?: string;
  readonly creds?: string;
}

export type CredentialSource = NatsCredentials | (() => NatsCredentials | Promise<NatsCredentials>);

export function checkCredentials(credentials: CredentialSource | undefined): CredentialSource | undefined {
  if (credentials === undefined || typeof credentials === "function") return credentials;
  checkCredential(credentials);
  return Object.freeze({ ...credentials });
}

/** Resolves the credentials for one connection. Runs for every connection, so rotated credentials are picked up. */
export async function createAuthenticator(
  source: CredentialSource | undefined,
): Promise<Authenticator | undefined> {
  if (source === undefined) return undefined;
  const credentials = typeof source === "function" ? await resolveCredentials(source) : source;
  checkCredential(credentials);
  const { node } = await natsClient.load();
  if (credentials.user !== undefined)
    return node.usernamePasswordAuthenticator(credentials.user, credentials.password);
  if (credentials.token !== undefined) return node.tokenAuthenticator(credentials.token);
  if (credentials.nkeySeed !== undefined)
    return node.nkeyAuthenticator(Buffer.from(credentials.nkeySeed.trim()));
  return node.credsAuthenticator(Buffer.from(credentials.creds ?? ""));
}

// The error of the credential function may contain secrets, so its text is not repeated in our message.
async function resolveCredentials(
  source: () => NatsCredentials | Promise<NatsCredentials>,
): Promise<NatsCredentials> {
  try {
    return await source();
  } catch (cause) {
    throw new SagaboxError("TRANSPORT_UNREACHABLE", "The credential function for NATS failed.", { cause });
  }
}

const kinds = ["user", "token", "nkeySeed", "creds"] as const;

function checkCredential(credentials: NatsCredentials): void {
  rejectUnknownKeys("nats.credentials", credentials, [...kinds, "password"]);
  const values: readonly unknown[] = Object.values(credentials);
  if (values.some((value) => value !== undefined && typeof value !== "string")) {
    throw invalid("must be strings");
  }
  if (kinds.filter((kind) => credentials[kind] !== undefined).length !== 1) {
    throw invalid("must be one of user and password, token, nkeySeed or creds");
  }
  if ((credentials.user === undefined) !== (credentials.password === undefined)) {
    throw invalid("need user and password together");
  }
}

function invalid(what: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", `nats.credentials ${what}.`);
}
