import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

export interface Certificates {
  readonly ca: string;
  readonly server: { readonly cert: string; readonly key: string };
  readonly client: { readonly cert: string; readonly key: string };
}

/** An authority of our own and what it signed for 127.0.0.1, made by openssl and gone after the test: paths for the server. */
export function certificates(): { readonly folder: string; readonly pem: Certificates } {
  const folder = mkdtempSync(join(tmpdir(), "sagabox-tls-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const openssl = (...args: string[]): void =>
    void execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  openssl(
    "req",
    "-x509",
    ...key,
    "-days",
    "2",
    "-subj",
    "/CN=our authority",
    "-keyout",
    "ca.key",
    "-out",
    "ca.pem",
  );
  writeFileSync(join(folder, "names"), "subjectAltName=IP:127.0.0.1,DNS:nats.test\n");
  for (const name of ["server", "client"]) {
    openssl("req", ...key, "-subj", `/CN=${name}`, "-keyout", `${name}.key`, "-out", `${name}.csr`);
    const signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"];
    openssl("x509", "-req", "-in", `${name}.csr`, ...signed, "-days", "2", "-out", `${name}.pem`);
  }
  const read = (file: string): string => readFileSync(join(folder, file), "utf8");
  const pair = (name: string) => ({ cert: read(`${name}.pem`), key: read(`${name}.key`) });
  return { folder, pem: { ca: read("ca.pem"), server: pair("server"), client: pair("client") } };
}
