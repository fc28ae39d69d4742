import { SagaboxError } from "../../errors/index.ts";
import { flag, oneOf, rejectUnknownKeys, text } from "../../options/index.ts";

export interface TlsOptions {
  /** Authorities to trust instead of the system's, in PEM. */
  readonly ca?: string | Buffer | readonly (string | Buffer)[];
  /** Our own certificate and key, where the broker asks for them. */
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly passphrase?: string;
  /** The name in the broker's certificate, if it is not the host we call. */
  readonly servername?: string;
}

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

export interface SaslOptions {
  readonly mechanism: "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512";
  /** A function is called at each connect, so that a changed password is found. */
  readonly credentials: Credentials | (() => Credentials | Promise<Credentials>);
}

export interface SaslSettings {
  readonly mechanism: "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512";
  readonly credentials: () => Promise<Credentials>;
}

const TLS_KEYS: readonly (keyof TlsOptions)[] = ["ca", "cert", "key", "passphrase", "servername"];

export function tlsSettings(tls: boolean | TlsOptions | undefined): TlsOptions | undefined {
  if (tls === undefined || tls === false) return undefined;
  if (typeof tls === "boolean") return flag("kafka.tls", tls) ? Object.freeze({}) : undefined;
  rejectUnknownKeys("kafka.tls", tls, TLS_KEYS);
  return Object.freeze({ ...tls });
}

export function saslSettings(sasl: SaslOptions | undefined): SaslSettings | undefined {
  if (sasl === undefined) return undefined;
  rejectUnknownKeys("kafka.sasl", sasl, ["mechanism", "credentials"]);
  const { credentials } = sasl;
  const mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] as const;
  const mechanism = oneOf("kafka.sasl.mechanism", sasl.mechanism, mechanisms);
  if (typeof credentials === "function")
    return Object.freeze({ mechanism, credentials: async () => checkCredentials(await credentials()) });
  const fixed = checkCredentials(credentials);
  return Object.freeze({ mechanism, credentials: async () => fixed });
}

// What is wrong is said, never what it was.
function checkCredentials(credentials: unknown): Credentials {
  if (typeof credentials !== "object" || credentials === null)
    throw new SagaboxError("OPTIONS_INVALID", "kafka.sasl.credentials must be { username, password }.");
  const { username, password } = credentials as Partial<Credentials>;
  return {
    username: text("kafka.sasl.credentials.username", username),
    password: text("kafka.sasl.credentials.password", password, { max: 10_000 }),
  };
}
