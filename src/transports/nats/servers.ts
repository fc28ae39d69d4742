import { SagaboxError } from "../../errors/index.ts";
import { isLoopback, rejectUnknownKeys } from "../../options/index.ts";

/**
 * TLS settings of a NATS connection. Certificates and keys are in PEM format. The server's certificate and its host name are
 * always verified.
 */
export interface NatsTls {
  /** Certificate authorities to trust instead of the Node.js defaults. */
  readonly ca?: string;
  /** Client certificate, if the server requires one. */
  readonly cert?: string;
  /** Private key of the client certificate. Required with `cert`. */
  readonly key?: string;
  /** Expected name in the server's certificate, if it differs from the host. */
  readonly servername?: string;
}

/** Checks the TLS options. Returns undefined if TLS is off. Throws OPTIONS_INVALID. */
export function checkTls(tls: NatsTls | boolean | undefined): NatsTls | undefined {
  if (tls === undefined) return undefined;
  if (tls === true) return {};
  rejectUnknownKeys("nats.tls", tls as NatsTls, ["ca", "cert", "key", "servername"]);
  const { cert, key } = tls as NatsTls;
  if ((cert === undefined) !== (key === undefined)) {
    throw new SagaboxError("OPTIONS_INVALID", "nats.tls needs both cert and key, or neither.");
  }
  return Object.freeze({ ...(tls as NatsTls) });
}

/**
 * Checks the addresses and returns them as "host:port". Throws OPTIONS_INVALID for credentials in an address, because they
 * would appear in logs, and for remote hosts without TLS unless `allowInsecure` is set.
 */
export function checkServers(
  servers: string | readonly string[],
  tls: NatsTls | undefined,
  allowInsecure: boolean,
): readonly string[] {
  const list = typeof servers === "string" ? servers.split(",") : servers;
  if (!Array.isArray(list) || list.length === 0) throw invalid("must be an address or an array of addresses");
  return Object.freeze(list.map((address: unknown) => checkServer(address, tls, allowInsecure)));
}

function checkServer(address: unknown, tls: NatsTls | undefined, allowInsecure: boolean): string {
  const url = typeof address === "string" ? parse(address.trim()) : undefined;
  if (url === undefined || !["nats:", "tls:"].includes(url.protocol) || url.hostname === "") {
    throw invalid('must contain addresses such as "nats://127.0.0.1:4222" or "tls://nats.example.com:4222"');
  }
  if (url.username !== "" || url.password !== "") {
    throw invalid("must not contain a user or password; use credentials instead");
  }
  const hasTls = tls !== undefined;
  if (url.protocol === "tls:" && !hasTls) throw invalid("has a tls:// address, so tls must be set (or true)");
  if (!hasTls && !allowInsecure && !isLoopback(url.hostname)) {
    throw invalid(
      `has ${url.hostname}, which is a remote host: set tls, or allowInsecure: true for a connection without TLS`,
    );
  }
  return `${url.hostname}:${url.port === "" ? "4222" : url.port}`;
}

interface Address {
  readonly protocol: string;
  readonly hostname: string;
  readonly port: string;
  readonly username: string;
  readonly password: string;
}

// `URL` validates host names only for schemes it knows, so parse the address as https. `URL` then drops port 443, the default
// of https, so restore it.
function parse(address: string): Address | undefined {
  const [, scheme = "nats", rest = ""] = /^(?:([a-z]+):\/\/)?(.+)$/.exec(address) ?? [];
  try {
    const { hostname, port, username, password } = new URL(`https://${rest}`);
    return {
      protocol: `${scheme}:`,
      hostname,
      port: port || (/:443\/?$/.test(rest) ? "443" : ""),
      username,
      password,
    };
  } catch {
    return undefined;
  }
}

function invalid(problem: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", `nats.servers ${problem}.`);
}
