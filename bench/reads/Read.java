import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;

/**
 * Reads topics with Pulsar's Java client, and prints a result for each. Arguments: service URL, process id of the broker,
 * those of the bookies with commas, log of the object store, and for each topic its name and number of messages.
 */
public class Read {
    private static final int QUEUE = 10_000;
    private static final String REQUEST = "HTTP/1.1";

    private final long broker;
    private final long[] bookies;
    private final Path log;
    private long seen;

    Read(String broker, String bookies, String log) {
        this.broker = Long.parseLong(broker);
        this.bookies = Arrays.stream(bookies.split(",")).mapToLong(Long::parseLong).toArray();
        this.log = Path.of(log);
    }

    public static void main(String[] arguments) throws Exception {
        Read read = new Read(arguments[1], arguments[2], arguments[3]);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build()) {
            for (int at = 4; at < arguments.length; at += 2) {
                read.topic(client, arguments[at], Integer.parseInt(arguments[at + 1]));
            }
        }
        System.exit(0);
    }

    private void topic(PulsarClient client, String topic, int messages) throws Exception {
        double[] before = now();
        double first = 0;
        long size = 0;
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest)
                .receiverQueueSize(QUEUE).create()) {
            for (int number = 0; number < messages; number++) {
                Message<byte[]> message = reader.readNext();
                if (number == 0) {
                    first = System.nanoTime() / 1e9 - before[0];
                }
                size += message.getData().length;
                seen += message.getKey().length() + message.getPublishTime() + message.getMessageId().hashCode();
            }
            double[] after = now();
            System.out.print(String.format(
                    "{\"what\": \"%s\", \"messages\": %d, \"bytes\": %d, \"first_s\": %f, \"s\": %f, \"cpu_s\": %f,"
                            + " \"broker_s\": %f, \"bookies_s\": %f, \"requests\": %d}%n",
                    topic, messages, size, first, after[0] - before[0], after[1] - before[1], after[2] - before[2],
                    after[3] - before[3], (long) (after[4] - before[4])));
        }
    }

    private double[] now() throws Exception {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        double own = system.getProcessCpuTime() / 1e9;
        double requests;
        try (Stream<String> lines = Files.lines(log)) {
            requests = lines.filter(line -> line.contains(REQUEST)).count();
        }
        return new double[] {
            System.nanoTime() / 1e9, own, cpu(broker), LongStream.of(bookies).mapToDouble(Read::cpu).sum(), requests
        };
    }

    private static double cpu(long pid) {
        Duration spent = ProcessHandle.of(pid).orElseThrow().info().totalCpuDuration().orElseThrow();
        return spent.toNanos() / 1e9;
    }
}
