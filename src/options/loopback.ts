import { isIP } from "node:net";

/**
 * Returns whether a host name is this machine: "localhost", "::1" (with or without brackets) or an IPv4 address in
 * 127.0.0.0/8. Transports and stores allow unencrypted connections to such hosts only, so every other spelling of
 * loopback is refused.
 */
export function isLoopback(host: string): boolean {
  if (host === "localhost" || host === "::1" || host === "[::1]") return true;
  return isIP(host) === 4 && host.startsWith("127.");
}
