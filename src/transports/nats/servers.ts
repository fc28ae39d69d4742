import { SagaboxError } from "../../errors/index.ts";
import { rejectUnknownKeys } from "../../options/index.ts";

/** Certificates in PEM form. The server's is always verified, its host name too. */
export interface NatsTls {
  /** Authorities to trust instead of those of Node. */
  readonly ca?: string;
  /** Our own certificate and its key, where the server asks for one. */
  readonly cert?: string;
  readonly key?: string;
  /** The name the server's certificate must have, where it differs from the host. */
  readonly servername?: string;
}

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

const loopback = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;

/** "host:port" each. Credentials in an address would end up in logs, and clear text must be asked for. */
export function checkServers(
  given: string | readonly string[],
  tls: NatsTls | undefined,
  allowInsecure: boolean,
): readonly string[] {
  const list = typeof given === "string" ? given.split(",") : given;
  if (!Array.isArray(list) || list.length === 0) throw invalid("must be an address or a list of addresses");
  return Object.freeze(list.map((address: unknown) => checkServer(address, tls, allowInsecure)));
}

function checkServer(given: unknown, tls: NatsTls | undefined, allowInsecure: boolean): string {
  const url = typeof given === "string" ? parse(given.trim()) : undefined;
  if (url === undefined || !["nats:", "tls:"].includes(url.protocol) || url.hostname === "") {
    throw invalid('must hold addresses such as "nats://127.0.0.1:4222" or "tls://nats.example.com:4222"');
  }
  if (url.username !== "" || url.password !== "") {
    throw invalid("must not hold a user or password; give them as credentials");
  }
  const secure = tls !== undefined;
  if (url.protocol === "tls:" && !secure)
    throw invalid("has a tls:// address, so tls must be given (or true)");
  if (!secure && !allowInsecure && !loopback.test(url.hostname)) {
    throw invalid(
      `has ${url.hostname}, which is another machine: give tls, or allowInsecure: true for clear text`,
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

// Hosts are parsed strictly only under a scheme the parser knows; its own default port is put back.
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

function invalid(what: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", `nats.servers ${what}.`);
}
