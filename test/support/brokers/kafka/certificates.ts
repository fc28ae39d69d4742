import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

export interface Certificates {
  /** Whom to trust, in PEM. */
  readonly ca: string;
  /** For the broker: its certificate and key. */
  readonly keystore: string;
  readonly password: string;
  readonly remove: () => Promise<void>;
}

/** An authority that lives for one test, and a certificate of it for this name or address. */
export async function makeCertificates(subject = "IP:127.0.0.1"): Promise<Certificates> {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-certificates-"));
  const openssl = (...args: string[]): Promise<unknown> =>
    promisify(execFile)("openssl", args, { cwd: folder });
  const key = ["-newkey", "rsa:2048", "-nodes"];
  const password = "for-a-test-only";
  await openssl(
    "req",
    "-x509",
    ...key,
    "-keyout",
    "ca.key",
    "-out",
    "ca.pem",
    "-days",
    "2",
    "-subj",
    "/CN=test ca",
  );
  await openssl("req", ...key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=kafka");
  await writeFile(join(folder, "names"), `subjectAltName=${subject}\n`);
  const signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"];
  await openssl("x509", "-req", "-in", "server.csr", "-out", "server.pem", ...signed);
  const both = ["-in", "server.pem", "-inkey", "server.key", "-certfile", "ca.pem"];
  await openssl("pkcs12", "-export", ...both, "-out", "server.p12", "-passout", `pass:${password}`);
  return {
    ca: await readFile(join(folder, "ca.pem"), "utf8"),
    keystore: join(folder, "server.p12"),
    password,
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}
