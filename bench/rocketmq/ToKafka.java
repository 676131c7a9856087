import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Copies the queues of a topic of RocketMQ to the partitions with the same numbers of a Kafka topic until it is killed, with
 * the producer settings of a tuned MirrorMaker 2. Arguments: name servers, bootstrap, topic, topic at the target, most
 * messages of a pull.
 */
public class ToKafka {
    public static void main(String[] arguments) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1);
        });
        String topic = arguments[2], to = arguments[3];
        int most = Integer.parseInt(arguments[4]);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("bench-copier");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(most);
        consumer.setPullThresholdForQueue(8 * most);
        consumer.setPullThresholdForAll(64L * most);
        consumer.start();
        Properties settings = new Properties();
        settings.putAll(Map.of(
                "bootstrap.servers", arguments[1], "compression.type", "lz4", "linger.ms", "20",
                "batch.size", "524288", "acks", "all", "buffer.memory", "134217728"));
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        List<MessageQueue> queues = List.copyOf(consumer.fetchMessageQueues(topic));
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        while (true) {
            for (MessageExt message : consumer.poll(100)) {
                producer.send(copy(message, to), (stored, error) -> {
                    if (error != null) {
                        error.printStackTrace();
                        System.exit(1);
                    }
                });
            }
        }
    }

    private static ProducerRecord<byte[], byte[]> copy(MessageExt message, String to) {
        String keys = message.getKeys();
        ProducerRecord<byte[], byte[]> copy = new ProducerRecord<>(
                to, message.getQueueId(), message.getBornTimestamp(), keys == null ? null : bytes(keys), message.getBody());
        for (Map.Entry<String, String> property : message.getProperties().entrySet()) {
            copy.headers().add(property.getKey(), bytes(property.getValue()));
        }
        return copy;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
