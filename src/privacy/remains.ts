import type { PrivacyEngine } from "./engine.ts";

/** Something that outlives an erasure, and until when. */
export interface Remains {
  readonly where: string;
  readonly what: string;
  readonly until: string;
}

/** What destroying a key does not reach at once. It is told with every erasure, since somebody has to answer for it. */
export function listRemains({ cacheTtlMs }: Pick<PrivacyEngine, "cacheTtlMs">): readonly Remains[] {
  return [
    {
      where: "memory of other processes",
      what: "the key in clear, where it was in use",
      until: `${cacheTtlMs / 1_000} s from now at the latest`,
    },
    {
      where: "the table of keys on disk and in the write-ahead log",
      what: "the old row with the wrapped key, useless without the key that wrapped it",
      until: "vacuum has passed and the log was recycled",
    },
    {
      where: "backups and standbys of the table of keys",
      what: "the wrapped key; after a restore the erasure log must be reapplied",
      until: "the backup is deleted",
    },
    {
      where: "brokers, archives, blobs, dead letters and their backups",
      what: "ciphertext that nobody can open, and what was never sealed: keys, headers, other fields",
      until: "their own retention ends",
    },
    {
      where: "transactions that had read the person and not written yet",
      what: "what they publish after the erasure is sealed with a new key, as of somebody who came back",
      until: "the person is erased once more; a second erasure a little later finds it",
    },
    {
      where: "messages and sagas from before their contract said what is personal",
      what: "everything, in clear: it was never sealed",
      until: "their own retention ends",
    },
    {
      where: "replies to commands",
      what: "what is not named in `personal.reply`, and why a request failed, in clear, in the archive and at brokers",
      until: "their own retention ends",
    },
  ];
}
