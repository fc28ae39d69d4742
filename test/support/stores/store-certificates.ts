import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

export interface StoreCertificates {
  /** Whom the client trusts. */
  readonly ca: string;
  readonly good: Certificate;
  readonly wrongHost: Certificate;
  readonly expired: Certificate;
  /** By nobody the client knows. */
  readonly selfSigned: Certificate;
}

const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/** An authority of our own, what it signed for servers of different virtue, and one that signed itself. */
export function storeCertificates(): StoreCertificates {
  const folder = mkdtempSync(join(tmpdir(), "sagabox-tls-"));
  const openssl = (...args: readonly string[]): void =>
    void execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  const read = (file: string): string => readFileSync(join(folder, file), "utf8");
  const pair = (name: string): Certificate => ({ cert: read(`${name}.pem`), key: read(`${name}.key`) });
  const createSelfSigned = (name: string, ...more: readonly string[]): void => {
    const files = ["-keyout", `${name}.key`, "-out", `${name}.pem`];
    openssl("req", "-x509", ...newKey, "-days", "2", "-subj", `/CN=${name}`, ...files, ...more);
  };
  const createSigned = (name: string, host: string, days: string): Certificate => {
    writeFileSync(join(folder, "names"), `subjectAltName=${host}\n`);
    openssl("req", ...newKey, "-subj", `/CN=${name}`, "-keyout", `${name}.key`, "-out", `${name}.csr`);
    const by = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"];
    openssl("x509", "-req", "-in", `${name}.csr`, ...by, "-days", days, "-out", `${name}.pem`);
    return pair(name);
  };
  try {
    createSelfSigned("ca");
    createSelfSigned("stranger", "-addext", "subjectAltName=IP:127.0.0.1");
    return {
      ca: read("ca.pem"),
      good: createSigned("good", "IP:127.0.0.1", "2"),
      wrongHost: createSigned("elsewhere", "DNS:elsewhere.test", "2"),
      expired: createSigned("expired", "IP:127.0.0.1", "-1"),
      selfSigned: pair("stranger"),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
