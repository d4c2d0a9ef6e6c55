// A stream in Streamstone's layout, read and written with Microsoft's client for JavaScript, which knows nothing of
// this library. Usage: CONNECTION_STRING=... node streamstone.mjs COMMAND TABLE PARTITION [VERSION ETAG ID]
//
// read    checks the layout, and prints the stream with the types of its properties
// create  writes a new stream in one transaction, a second one to append to it, and prints its ETag
// append  writes one event with an id after VERSION, under the header's ETAG, and prints the new ETag or the refusal

import assert from "node:assert/strict";
import { TableClient, odata } from "@azure/data-tables";

const [command, table, partitionKey, ...rest] = process.argv.slice(2);
const client = TableClient.fromConnectionString(process.env.CONNECTION_STRING, table, {
  allowInsecureConnection: true, // to the emulator
});

const eventKey = (version) => `SS-SE-${String(version).padStart(10, "0")}`;
const row = (rowKey, properties) => ({ partitionKey, rowKey, ...properties });

async function read() {
  const rows = new Map();
  const filter = odata`PartitionKey eq ${partitionKey}`;
  for await (const entity of client.listEntities({ queryOptions: { filter }, disableTypeConversion: true })) {
    const { partitionKey: _, rowKey, timestamp, etag, ...properties } = entity;
    assert.ok(etag && timestamp);
    rows.set(rowKey, { etag, properties });
  }

  const versionIn = ({ properties: { Version } }) => {
    assert.equal(Version.type, "Int32");
    return Number(Version.value);
  };
  const take = (rowKey) => {
    const { properties } = rows.get(rowKey);
    rows.delete(rowKey);
    const { Version: _, ...own } = properties;
    return own;
  };

  const header = rows.get("SS-HEAD");
  const stream = { etag: header.etag, version: versionIn(header), events: [], ids: {}, others: {} };
  stream.properties = take("SS-HEAD");
  for (let version = 1; version <= stream.version; version++) {
    assert.equal(versionIn(rows.get(eventKey(version))), version);
    stream.events.push(take(eventKey(version)));
  }
  for (const [rowKey, found] of rows) {
    assert.ok(!rowKey.startsWith("SS-SE-") && rowKey !== "SS-HEAD", `${rowKey} is beyond the version`);
    if (!rowKey.startsWith("SS-UID-")) {
      stream.others[rowKey] = found.properties;
      continue;
    }
    const version = versionIn(found);
    assert.ok(1 <= version && version <= stream.version, `${rowKey} points at no event`);
    assert.deepEqual(Object.keys(found.properties), ["Version"]);
    stream.ids[rowKey.slice("SS-UID-".length)] = version;
  }
  return stream;
}

async function create() {
  const first = await client.submitTransaction([
    ["create", row("SS-HEAD", { Version: 2, Owner: "Ada", Opened: new Date("2024-01-02T03:04:05.678Z") })],
    ["create", row(eventKey(1), { Version: 1, Type: "Created", Count: 1, Large: 2n ** 40n, Small: 1n })],
    ["create", row("SS-UID-first", { Version: 1 })],
    [
      "create",
      row(eventKey(2), {
        Version: 2,
        Type: "Käse",
        Real: 1.5,
        Whole: { type: "Double", value: "2" },
        Endless: { type: "Double", value: "Infinity" },
        Yes: true,
        Id: { type: "Guid", value: "6f9619ff-8b86-d011-b42d-00cf4fc964ff" },
        When: { type: "DateTime", value: "2024-01-02T03:04:05.678901Z" },
        Bytes: new Uint8Array([0, 255]),
      }),
    ],
  ]);
  const { etag } = first.getResponseForEntity("SS-HEAD");
  return (await append(2, etag, "third", { Owner: "Grace" })).etag;
}

async function append(version, etag, id, properties = {}) {
  const next = Number(version) + 1;
  const { subResponses } = await client.submitTransaction([
    ["update", row("SS-HEAD", { Version: next, ...properties }), "Replace", { etag }],
    ["create", row(eventKey(next), { Version: next, Type: "Appended" })],
    ["create", row(`SS-UID-${id}`, { Version: next })],
  ]);
  return { etag: subResponses[0].etag };
}

async function appendOrRefusal(...position) {
  try {
    return await append(...position);
  } catch (error) {
    if (!error.statusCode) throw error;
    return { refused: [error.statusCode, error.code] };
  }
}

const commands = { read, create, append: appendOrRefusal };
console.log(JSON.stringify(await commands[command](...rest)));
