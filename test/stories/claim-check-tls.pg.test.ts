import { Agent } from "node:https";
import { S3Client } from "@aws-sdk/client-s3";
import { s3Store } from "sagabox/claim-check";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { MultipartServer, type ServerTls } from "../support/stores/multipart-server.ts";
import { payloadHarness } from "../support/stores/payload-harness.ts";
import { s3Credentials } from "../support/stores/s3-server.ts";
import { storeCertificates, type StoreCertificates } from "../support/stores/store-certificates.ts";

let certificates: StoreCertificates;
beforeAll(() => {
  certificates = storeCertificates();
});

/** A bus whose store trusts our authority, and nobody else beside those everybody trusts. */
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
])("SEC-30: S3 with a certificate that is %s is refused, and hears nothing", async (_, why, tls) => {
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
