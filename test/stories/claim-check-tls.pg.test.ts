import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { Agent } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { S3Client } from "@aws-sdk/client-s3";
import { s3Store } from "sagabox/claim-check";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { payloadHarness } from "../support/stores/payload-harness.ts";
import { MultipartServer, type ServerTls, s3Credentials } from "../support/stores/s3-server.ts";

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
  /** Signed by an authority that the client does not know. */
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

let certificates: StoreCertificates;
beforeAll(() => {
  certificates = storeCertificates();
});

/** A bus whose store trusts our authority in addition to the usual ones. */
async function harnessWithTls(tls: ServerTls) {
  const server = await MultipartServer.start(tls);
  onTestFinished(() => server.stop());
  const { bucket, endpoint } = server;
  const client = new S3Client({
    endpoint,
    region: "us-east-1",
    forcePathStyle: true,
    credentials: s3Credentials,
    requestHandler: { httpsAgent: new Agent({ ca: certificates.ca }) },
  });
  onTestFinished(() => client.destroy());
  return { ...(await payloadHarness({ claimCheck: { store: s3Store({ bucket, client }) } })), server };
}

test("SEC-30: S3 behind a certificate that its authority signed for this host is spoken to", async () => {
  const { bus, server } = await harnessWithTls(certificates.good);
  const { $attachment } = await bus.attach(Buffer.from("report"));
  expect([...server.objects.keys()]).toEqual([$attachment.key]);
});

test.each([
  ["signed by itself", "DEPTH_ZERO_SELF_SIGNED_CERT", () => certificates.selfSigned],
  ["expired", "CERT_HAS_EXPIRED", () => certificates.expired],
  ["for another host", "ERR_TLS_CERT_ALTNAME_INVALID", () => certificates.wrongHost],
  [
    "shown over TLS 1.1",
    "EPROTO|ERR_SSL",
    () => ({
      ...certificates.good,
      minVersion: "TLSv1.1" as const,
      maxVersion: "TLSv1.1" as const,
      ciphers: "DEFAULT@SECLEVEL=0",
    }),
  ],
])("SEC-30: S3 with a certificate that is %s is refused, and gets no data", async (_, why, tls) => {
  const { bus, server, counts } = await harnessWithTls(tls());
  await expect(bus.attach(Buffer.from("report"))).rejects.toMatchObject({
    code: "CLAIM_STORE_UNAVAILABLE",
    message: expect.stringMatching(why) as string,
  });
  expect([server.asked, server.objects.size]).toEqual([0, 0]);
  expect(await counts()).toEqual({ blob: 0, use: 0, chunk: 0 });
});

test("SEC-30: without an authority of its own the client does not trust ours", async () => {
  const server = await MultipartServer.start(certificates.good);
  onTestFinished(() => server.stop());
  const { bucket, endpoint } = server;
  const store = s3Store({ bucket, endpoint, region: "us-east-1", credentials: s3Credentials });
  const { bus } = await payloadHarness({ claimCheck: { store } });
  await expect(bus.attach(Buffer.from("report"))).rejects.toMatchObject({
    code: "CLAIM_STORE_UNAVAILABLE",
    message: expect.stringMatching("UNABLE_TO_VERIFY_LEAF_SIGNATURE|SELF_SIGNED_CERT_IN_CHAIN") as string,
  });
  expect(server.asked).toBe(0);
});
