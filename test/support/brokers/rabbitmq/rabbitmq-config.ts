import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

export const USER = "sagabox";
export const PASSWORD = "only-for-tests";

export interface RabbitPorts {
  readonly amqp: number;
  readonly tls: number;
  readonly dist: number;
  readonly epmd: number;
}

/** Less than a transport allows by default, so that a test can send what closes its channel. */
export const maxMessageBytes = 5 * 1_048_576;

/** The rabbitmq.conf of a server, with the names of all nodes if it is part of a cluster. */
export function configuration(ports: RabbitPorts, folder: string, nodes: readonly string[]): string {
  return [
    `listeners.tcp.1 = 127.0.0.1:${ports.amqp}`,
    `listeners.ssl.1 = 127.0.0.1:${ports.tls}`,
    `ssl_options.cacertfile = ${join(folder, "ca.pem")}`,
    `ssl_options.certfile = ${join(folder, "cert.pem")}`,
    `ssl_options.keyfile = ${join(folder, "key.pem")}`,
    "ssl_options.verify = verify_none",
    "ssl_options.versions.1 = tlsv1.2",
    `default_user = ${USER}`,
    `default_pass = ${PASSWORD}`,
    "vm_memory_high_watermark.absolute = 1GB",
    `max_message_size = ${maxMessageBytes}`,
    "disk_free_limit.absolute = 50MB",
    "raft.wal_max_size_bytes = 32000000",
    "log.console.level = warning",
    ...(nodes.length === 0 ? [] : ["cluster_formation.peer_discovery_backend = classic_config"]),
    ...nodes.map((node, n) => `cluster_formation.classic_config.nodes.${n + 1} = ${node}`),
    "",
  ].join("\n");
}

// An authority of our own and a certificate for the loopback, good for a day.
export async function certificates(folder: string): Promise<void> {
  const openssl = (words: string): Promise<unknown> => run("openssl", words.split(" "), { cwd: folder });
  const key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
  await openssl(`req -x509 ${key} -keyout ca-key.pem -out ca.pem -subj /CN=sagabox-tests`);
  writeFileSync(join(folder, "names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
  await openssl(`req ${key} -keyout key.pem -out request.pem -subj /CN=localhost`);
  await openssl(
    "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile names -out cert.pem",
  );
}
